"""The call that makes Snakemake's report, and what happens when it cannot be made."""

import re
from pathlib import Path
from types import SimpleNamespace

import jinja2
import pytest
from snakemake.cli import parse_config

from tnfdt.run import report
from tnfdt.study.paths import StudyPaths
from tnfdt.study.schema import ROOT

FRONT = ROOT / "workflow/report/front.rst"
WHERE = {"study": "my.yaml", "results_dir": "out"}


def test_the_call_names_the_study_and_nothing_secret():
    call = report.command("Snakefile", Path("out/my/report.html"), **WHERE, configfiles=["c.yaml"])
    settings = call[call.index("--config") + 1 : call.index("--report")]
    assert parse_config(settings) == WHERE
    assert call[call.index("--report") + 1] == "out/my/report.html"
    assert call[call.index("--configfile") + 1] == "c.yaml"
    assert call[-2:] == ["--", "tables"]
    assert Path(call[call.index("--report-stylesheet") + 1]).is_file()


@pytest.mark.parametrize(
    ("grid", "first"), [(["table2", "table1"], "table1"), (["mine"], "mine"), ([], None)]
)
def test_the_front_page_leads_with_the_first_table_of_the_study(grid, first):
    pages = [f"{name}.html" for name in ("claims", *grid, "evidence", "comparison", "audit")]
    files = [SimpleNamespace(target=name, path=f"at/{name}") for name in (*pages, "forest.png")]
    study = SimpleNamespace(config={"study": "my/own.yaml"})
    page = jinja2.Template(FRONT.read_text()).render(snakemake=study, files=files)
    shown = [f"at/{first}.html"] * bool(first) + ["at/claims.html"]
    assert re.findall(r":file: (\S+)", page) == shown
    assert "Study own\n=========\n" in page


@pytest.mark.parametrize(
    "path", ["a: b", "007", "yes", "a #b", "'a\"", "[a]", "a\\nb", "é😀", "!a"]
)
def test_snakemake_reads_paths_as_they_are(path):
    call = report.command("Snakefile", Path("r.html"), study=path, results_dir=path)
    settings = call[call.index("--config") + 1 : call.index("--report")]
    assert parse_config(settings) == {"study": path, "results_dir": path}


@pytest.fixture
def calls(monkeypatch, tmp_path):
    """Pretends to be Snakemake: records the call, and writes the report if it may."""
    made = []

    class Done:
        stderr, stdout, returncode = "one\nlast words\n", "", 0

    def run(call, **_):
        made.append(call)
        if Done.returncode == 0:
            Path(call[call.index("--report") + 1]).write_text('<img src="figure:robust_accuracy">')
        return Done

    monkeypatch.setattr(report.subprocess, "run", run)
    run.done = Done
    return made, Done


def test_the_audit_is_part_of_it_where_there_is_one(calls, tmp_path):
    paths = StudyPaths(tmp_path)
    assert report.make("Snakefile", paths, **WHERE) == paths.report
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables/audit.html").write_text("")
    report.make("Snakefile", paths, **WHERE)
    assert [call[call.index("--") + 1 :] for call in calls[0]] == [
        ["tables"],
        ["tables", "make_audit_tables"],
    ]


def test_the_front_figure_is_inside_the_page(calls, tmp_path):
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures/robust_accuracy.png").write_bytes(b"picture")
    page = report.make("Snakefile", StudyPaths(tmp_path), **WHERE)
    assert page.read_text() == '<img src="data:image/png;base64,cGljdHVyZQ==">'


def test_a_failure_is_told_in_one_line_and_does_not_fail_the_run(calls, tmp_path, capsys):
    calls[1].returncode = 1
    assert report.make("Snakefile", StudyPaths(tmp_path), **WHERE) is None
    assert capsys.readouterr().err.endswith("could not be made: last words\n")
