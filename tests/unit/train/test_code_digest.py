"""The digest of a training's code changes with what decides a training, and with nothing else."""

import shutil
from pathlib import Path

import pytest

from tnfdt.study.schema import ROOT
from tnfdt.train import code_digest


@pytest.fixture
def package(tmp_path, monkeypatch):
    folder = tmp_path / "tnfdt"
    shutil.copytree(ROOT / "tnfdt", folder, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(code_digest, "_PACKAGE", folder)
    return folder


def digest():
    return code_digest.training_code.__wrapped__()["sources"]


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("core/losses.py", True),
        ("models.py", True),
        ("devices.py", True),
        ("data/prepared.py", True),
        ("train/recipe.py", True),
        ("tables/paper.py", False),
        ("attack/pgd.py", False),
        ("core/README.md", False),
    ],
)
def test_a_change_of_a_file(package, name, counts):
    before = digest()
    path = package / name
    path.write_text((path.read_text() if path.exists() else "") + "# changed\n")
    assert (digest() != before) == counts


def test_a_renamed_and_an_added_file_count(package):
    before = digest()
    (package / "core/extra.py").write_text("")
    added = digest()
    (package / "core/extra.py").rename(package / "core/other.py")
    assert len({before, added, digest()}) == 3


def test_it_does_not_depend_on_the_place(package):
    found = code_digest.digest_sources([ROOT / "tnfdt/core"])
    assert found == code_digest.digest_sources([Path(package, "core")])


def test_the_libraries_are_named():
    assert {"sources", "torch", "timm"} == code_digest.training_code().keys()
