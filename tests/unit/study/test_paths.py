"""Every path under results/ is spelled in tnfdt/study/paths.py, and nowhere else."""

import ast
import re
from pathlib import Path

import pytest

from tnfdt.study import paths
from tnfdt.study.paths import Cell, StudyPaths, attack_job, parse_path
from tnfdt.study.schema import ROOT

HOME = Path(paths.__file__)
FILES = {
    *paths.TRAIN_FILES,
    *paths.DATA_FILES,
    *paths.AUDIT_FILES,
    *(paths.BEST_WEIGHTS, paths.BEST_CLEAN, paths.JOURNAL, paths.CHECKPOINT),
    *(
        value.fget(StudyPaths(Path())).name
        for value in vars(StudyPaths).values()
        if isinstance(value, property)
    ),
} - {"audit", "logs", "tables", "figures"}  # folders, which are also words
FOLDER = re.compile(r"(?:^|/)(?:train|attack|audit|data|logs|benchmarks|tables|figures)(?=/)")
ROOTED = re.compile(r"/(?:train|attack|audit|data|logs|benchmarks|tables|figures)/")


def spelled(text):
    """The pieces of a module that are names of files, or folders of stages in a path."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            is_path = node.value.rpartition("/")[2] in FILES or ROOTED.search(node.value)
            if is_path and " " not in node.value:  # else it is a sentence
                yield node.value
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            right = node.right
            if isinstance(right, ast.Constant) and FOLDER.match(f"{right.value}/"):
                yield right.value


MODULES = [path for path in sorted(ROOT.glob("tnfdt/**/*.py")) if path != HOME]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_other_module_spells_a_path(path):
    assert [*spelled(path.read_text())] == []


def test_no_rule_spells_a_path():
    for path in ROOT.glob("workflow/rules/*.smk"):
        text = path.read_text()
        assert not ROOTED.search(text), path
        assert not [name for name in FILES if f'{name}"' in text], path


@pytest.mark.parametrize(
    "text",
    ['open("a/record.json")', 'f"{folder}/train/{cell.path}"', 'folder / "attack" / cell.path'],
)
def test_a_path_is_found_however_it_is_spelled(text):
    assert [*spelled(text)]


def test_patterns_are_the_paths_of_a_cell_of_wildcards():
    cell = Cell("c10", "resnet34", "tn", 3)
    pattern = StudyPaths(Path("r/s")).attack_array(
        Cell("{dataset}", "{model}", "{method}", "{seed}"), "{epsilon}"
    )
    filled = str(pattern).format(**cell._asdict(), epsilon="0.1")
    assert filled == str(StudyPaths(Path("r/s")).attack_array(cell, 0.1))
    assert attack_job(cell, 0.1) == f"{cell.path}/eps0.1"
    assert parse_path(cell.path) == cell
