"""tables.tex through the real pdflatex."""

import re
import subprocess

import pytest

from tests import synthetic
from tnfdt.study.study import load_study
from tnfdt.tables import stage as stage_tables

pytestmark = pytest.mark.needs("latex")

OVERFULL = re.compile(r"Overfull \\[hv]box \(([\d.]+)pt too (?:wide|high)\)")
NASTY = synthetic.study(
    "nasty",
    grid={
        "table1": {
            "datasets": ["my_set.v2", "c10"],
            "models": ["vit_base_patch16", "wrn10_1"],
            "methods": ["vanilla", "my_way"],
        }
    },
    methods={"vanilla": {}, "my_way": {"tensor_norm": True}},
    datasets={"my_set.v2": {}, "c10": {}},
    attack={"epsilons": [0.1, 0.03, 8e-05]},
)


def studies():
    """The paper's own grid whole, in part and not at all, one seed, and names to escape."""
    paper = load_study("paper")
    late = tuple(cell for cell in paper.cells if cell.seed == 2 or cell.dataset == "svhn")
    return [
        pytest.param(paper, (), id="paper"),
        pytest.param(paper, late, id="part"),
        pytest.param(paper, tuple(paper.cells), id="nothing"),
        pytest.param(load_study("mini"), (), id="mini"),
        pytest.param(synthetic.study(seeds=[0]), (), id="one seed"),
        pytest.param(NASTY, (), id="nasty names"),
    ]


def compile_tables(folder):
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "tables.tex"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace")
    assert done.returncode == 0, done.stdout[-2000:]
    return (folder / "tables.log").read_text(errors="replace")


@pytest.mark.parametrize(("study", "skip"), studies())
def test_the_document_compiles_without_boxes_that_stick_out(study, skip, tmp_path):
    folder = synthetic.write(study, tmp_path, synthetic.World(images=40), skip=skip)
    if study.audit.include:
        synthetic.write_audits(study, folder)
    parts = ("tables", "audit") if study.audit.include else ("tables",)
    stage_tables.run(study, tmp_path, synthetic.machine(), parts)
    log = compile_tables(folder / "tables")
    wide = [float(points) for points in OVERFULL.findall(log)]
    assert not [points for points in wide if points > 10]
    assert "Float too large" not in log
    assert "Missing character" not in log
    assert (folder / "tables/tables.pdf").stat().st_size > 10_000


def test_an_error_would_be_seen(tmp_path):
    (tmp_path / "tables.tex").write_text(
        r"\documentclass{article}\begin{document}\nope\end{document}"
    )
    with pytest.raises(AssertionError, match="nope"):
        compile_tables(tmp_path)
