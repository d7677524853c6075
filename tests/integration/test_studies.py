"""The committed studies: whole, traceable, rebuilt from their evidence, and made again."""

import csv
import json
import re
import shutil
import subprocess
from statistics import mean

import numpy as np
import pytest

from tests.integration.conftest import Project
from tnfdt.bundle.rebuild import rebuild
from tnfdt.evidence import ledger
from tnfdt.files.provenance import is_exact, provenance
from tnfdt.study import products
from tnfdt.study.attack_settings import with_precision
from tnfdt.study.machine import load_machine
from tnfdt.study.paths import StudyPaths, format_epsilon
from tnfdt.study.schema import ROOT
from tnfdt.study.study import load_study

CELL = "fmnist/wrn10_1/tn_fdt/seed0"  # its images come with Debian's package
MINI, EVIDENCE = ROOT / "results/mini", "evidence.zip"


def committed():
    listed = subprocess.run(
        ["git", "ls-files", "results"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return [ROOT / line for line in listed.stdout.splitlines()]


STUDIES = sorted({path.relative_to(ROOT / "results").parts[0] for path in committed()})


@pytest.fixture(scope="module", params=STUDIES)
def study(request):
    return load_study(request.param)


@pytest.fixture(scope="module")
def folder(study):
    return ROOT / "results" / study.name


@pytest.fixture(scope="module")
def cells(folder):
    return json.loads((StudyPaths(folder).ledger).read_text())["cells"]


@pytest.fixture(scope="module")
def names(folder):
    """What is committed of a study."""
    return {p.relative_to(folder).as_posix() for p in committed() if folder in p.parents}


def rows(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_what_is_committed_is_small(folder, names):
    allowed = r"tables/\w+\.(tex|csv|md|json)|figures/[\w-]+\.png|evidence\.zip|summary\.md"
    assert not [name for name in names if not re.fullmatch(allowed, name)]
    assert sum(path.stat().st_size for path in committed()) < 25 * 2**20


def test_the_committed_tables_come_out_of_the_committed_evidence(folder, names, tmp_path):
    """The golden test of the second half of the pipeline: the same bytes, and nothing missing."""
    made = {p.relative_to(tmp_path).as_posix() for p in rebuild(folder / EVIDENCE, tmp_path)}
    pictures = {f"figures/{name}.png" for name in products.PICTURES}
    kept = {name for name in made if not name.endswith((".html", ".pdf"))}
    assert kept == names - pictures - {EVIDENCE}
    differ = [n for n in sorted(kept) if (tmp_path / n).read_bytes() != (folder / n).read_bytes()]
    assert not differ


@pytest.mark.parametrize("name", ["c10", "c100", "svhn"])
def test_the_samples_images_are_known_by_their_positions(name):
    study = load_study("mini")
    positions = json.loads((ROOT / f"config/samples/{name}_sample.json").read_text())
    sample = ROOT.parent / "shared/data" / study.datasets[name].sample
    for split, count in (("train", study.limit.train), ("test", study.limit.test)):
        assert len(set(positions[split])) == len(positions[split]) == count
        if sample.is_file():
            with np.load(sample) as arrays:
                assert arrays[f"{split}_index"].tolist() == positions[split]


def test_all_cells_are_of_one_commit_with_the_studys_settings(study, cells):
    machine = load_machine()
    assert list(cells) == [cell.path for cell in study.cells]
    for cell, entry in zip(study.cells, cells.values(), strict=True):
        made = entry["train"]["config"]
        assert study.train_slice(cell, machine).items() <= made.items()
        epsilons = [attack["epsilon"] for attack in entry["attacks"]]
        wanted = [study.attack_slice(epsilon, cell.method) for epsilon in epsilons]
        assert [with_precision(attack["config"]) for attack in entry["attacks"]] == wanted
        assert sorted(epsilons) == sorted(study.attack.epsilons)
    commits = {entry["train"]["commit"] for entry in cells.values()}
    assert len(commits) == 1
    assert is_exact(commits.pop())


def test_every_number_of_a_table_is_the_mean_of_its_cells(study, folder, cells):
    for row in (row for table in study.grid for row in rows(folder / f"tables/{table}.csv")):
        place = "/".join(row[key] for key in ("dataset", "model", "method"))
        entries = [cells[f"{place}/seed{seed}"] for seed in study.seeds]
        clean = [entry["train"]["metrics"]["accuracy"] for entry in entries]
        assert float(row["clean"]) == pytest.approx(100 * mean(clean), abs=0.0051)
        for index, epsilon in enumerate(sorted(study.attack.epsilons, reverse=True)):
            robust = [entry["attacks"][index]["metrics"]["robust_accuracy"] for entry in entries]
            shown = float(row[f"eps{format_epsilon(epsilon)}"])
            assert shown == pytest.approx(100 * mean(robust), abs=0.0051)


def test_the_results_page_shows_the_committed_tables(study, folder):
    page = (ROOT / "docs/results.md").read_text(encoding="utf-8").splitlines()
    table = (folder / "tables" / f"{next(iter(study.grid))}.md").read_text(encoding="utf-8")
    shown = [line for line in table.splitlines() if line.startswith("|")]
    assert len(shown) > 5
    assert not set(shown) - set(page)


def test_committed_tables_do_not_stand_in_for_a_run(study, tmp_path):
    """Snakemake runs nothing for a target that is there: a fresh clone must lack some of them."""
    for path in committed():
        copy = tmp_path / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
    counts = Project(tmp_path).planned(study=study.name)
    assert counts["train_cell"] >= len(study.cells)
    assert counts["make_tables"] == counts["pack"] == 1


@pytest.mark.needs("fashion-mnist")
def test_a_committed_cell_comes_out_the_same(tmp_path):
    made, here = ledger.cells(StudyPaths(MINI).ledger)[CELL]["train"], provenance()
    packages = ("torch", "timm", "foolbox", "numpy")
    recorded = [made["hardware"]["cpu"], *(made["versions"][name] for name in packages)]
    now = [here["hardware"]["cpu"], *(here["versions"][name] for name in packages)]
    if recorded != now:
        pytest.skip(f"made with {recorded}, this is {now}: the last digits may differ")
    project = Project(tmp_path)
    shutil.copytree(MINI / "tables", tmp_path / "results/mini/tables")
    done = project.tnfdt("verify", "results/mini", "--cell", CELL, "--set", "device=cpu")
    assert "the weights have the same bytes" in done.stdout
    assert done.stdout.rstrip().endswith("0 within rounding, 0 different")
