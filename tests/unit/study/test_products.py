"""The names that the workflow knows against what is really made and really used."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests import synthetic
from tnfdt.study import products
from tnfdt.study.paths import DATA_FILES, Cell, StudyPaths
from tnfdt.study.schema import ROOT
from tnfdt.study.study import load_study

PATHS = StudyPaths(Path("results/any"))
COMMON = {"files", "data", "core", "study", "models", "devices", "train", "attack"}
ENTRIES = {
    "tables/summary.py": products.TABLE_PACKAGES,
    "tables/write.py": products.MADE_PACKAGES,
    "figures/write.py": products.MADE_PACKAGES,
    "figures/audit.py": products.AUDIT_PACKAGES,
}


def imported(path):
    """The packages that the modules of a file's package import, to any depth."""
    found, todo = set(), [path.parent.name]
    while todo:
        name = todo.pop()
        if name not in found:
            found.add(name)
            for module in (ROOT / "tnfdt" / name).glob("*.py"):
                todo += direct_imports(module)
    return found


def direct_imports(path):
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tnfdt."):
            yield node.module.split(".")[1]


@pytest.mark.parametrize(("entry", "packages"), ENTRIES.items())
def test_the_packages_that_make_a_result_are_its_inputs(entry, packages):
    assert imported(ROOT / "tnfdt" / entry) - COMMON <= set(packages)


def test_every_listed_file_exists():
    packages = {name for listed in ENTRIES.values() for name in listed}
    listed = products.sources(packages)
    assert len(listed) > len(packages)
    for path in listed:
        assert Path(path).is_file(), path


def test_reading_the_names_stays_cheap():
    command = [
        sys.executable,
        "-c",
        "import sys, tnfdt.study.products; print('pandas' in sys.modules)",
    ]
    assert subprocess.run(command, capture_output=True, text=True).stdout.strip() == "False"


@pytest.mark.parametrize("name", ["demo", "mini", "paper"])
def test_every_page_and_figure_has_a_caption_and_a_title(name):
    study = load_study(name)
    for item in (
        *products.table_pages(study),
        *products.figure_names(study),
        *("audit", "audit_bars"),
    ):
        assert item in products.TITLES
        assert (ROOT / "workflow/report" / f"{item}.rst").is_file()


def test_figures_of_methods_that_a_study_does_not_have_are_not_planned():
    grid = {"table1": {"datasets": ["c10"], "models": ["resnet34"], "methods": ["vanilla"]}}
    study = synthetic.study(grid=grid)
    assert products.figure_names(study)[-1] == "forest"
    assert products.pictured_files(study, PATHS) == [
        PATHS.data("c10") / name for name in DATA_FILES
    ]
    assert products.watched_cell(study) is None


def test_pictures_need_the_first_dataset_and_the_first_tensor_normalization():
    assert products.pictured_files(load_study("demo"), PATHS) == [
        *(PATHS.data("digits") / name for name in DATA_FILES),
        PATHS.weights(Cell("digits", "wrn10_1", "tn", 0)),
    ]


@pytest.mark.parametrize(
    ("changes", "facts"),
    [
        ({}, {"runs": "3 runs", "images": "all", "steps": "40"}),
        ({"seeds": [0], "attack": {"limit": 1500, "steps": 5}},
         {"runs": "1 run", "images": "1,500", "steps": "5"}),
    ],
)  # fmt: skip
def test_facts_for_the_captions(changes, facts):
    assert facts.items() <= products.facts(synthetic.study(**changes)).items()


def test_outputs_are_flagged_for_the_report():
    flagged = products.reported(
        lambda path, **flags: (path, flags), Path("r/tables"), "html", ["table1"]
    )
    path, flags = flagged["table1"]
    assert path == "r/tables/table1.html"
    assert flags["category"] == "Tables"
    assert flags["labels"] == {"table": "Table 1"}
    assert flags["caption"] == "../report/table1.rst"


def test_a_table_of_a_studys_own_has_the_caption_of_all_such():
    flagged = products.reported(
        lambda path, **flags: flags, Path("r/tables"), "html", ["what_else"]
    )
    assert flagged["what_else"]["labels"] == {"table": "what_else"}
    assert flagged["what_else"]["caption"] == "../report/table.rst"
    assert (ROOT / "workflow/report/table.rst").is_file()
