"""`tnfdt status --check`: what was changed, removed or replaced is named, whatever it is."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from tests.bundles import Lab
from tnfdt.status.mismatches import mismatches
from tnfdt.tables import stage

CELL = "c10/resnet34/tn/seed0"


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A study with everything but figures and a report."""
    folder = tmp_path_factory.mktemp("whole")
    lab = Lab(folder, seeds=[0])
    for cell in lab.study.cells:
        save_file({"w": torch.zeros(3)}, lab.folder / "train" / cell.path / "model.safetensors")
    lab = Lab(folder, seeds=[0])  # again: the records now name these files
    parts = ("tables", "audit", "summary")
    stage.run(lab.study, lab.folder.parent, lab.machine, parts)
    lab.pack()
    return lab


@pytest.fixture
def lab(whole):
    """It may be damaged: all is put back afterwards."""
    kept = shutil.copytree(whole.folder, whole.folder.with_name("kept"))
    yield whole
    shutil.rmtree(whole.folder)
    kept.rename(whole.folder)


def test_a_whole_study_has_none(lab):
    assert list(mismatches(lab.study, lab.machine)) == []


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def edit(path: Path) -> None:
    """A number by hand: the first digit 0 after a colon is another."""
    text = path.read_text()
    assert ": 0." in text
    path.write_text(text.replace(": 0.", ": 0.0", 1))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:500])


DAMAGES = [
    (Path.unlink, f"attack/{CELL}/eps0.1.json"),
    (Path.unlink, f"attack/{CELL}/eps0.1.npz"),
    (Path.unlink, f"train/{CELL}/clean.npz"),
    (Path.unlink, f"train/{CELL}/model.safetensors"),
    (Path.unlink, f"audit/{CELL}/audit.json"),
    (flip, f"train/{CELL}/history.csv"),
    (flip, f"train/{CELL}/model.safetensors"),
    (edit, f"audit/{CELL}/audit.json"),
    (edit, f"train/{CELL}/record.json"),
    (flip, "tables/claims.json"),
    (flip, "tables/table1.tex"),
    (flip, "tables/audit.md"),
    (flip, "summary.md"),
    (cut, "evidence.zip"),
]


@pytest.mark.parametrize(("damage", "name"), DAMAGES, ids=[f"{d.__name__} {n}" for d, n in DAMAGES])
def test_a_damaged_file_is_named(lab, damage, name):
    damage(lab.folder / name)
    assert any(str(lab.folder / name) in line for line in mismatches(lab.study, lab.machine))


def test_the_evidence_of_another_study_is_named(lab, tmp_path):
    other = Lab(tmp_path, seeds=[0])
    renamed = other.file.rename(other.file.with_name("other.yaml"))
    results = other.folder.rename(other.folder.with_name("other"))
    for path in results.rglob("*.json"):
        path.write_text(json.dumps(json.loads(path.read_text()) | {"study": "other"}))
    other.file = renamed
    shutil.copy(other.pack(), lab.folder / "evidence.zip")
    (line,) = mismatches(lab.study, lab.machine)
    assert "evidence.zip is of study other" in line


def test_tables_that_came_without_their_records_are_no_mismatch(lab):
    for name in ("train", "attack", "audit"):
        shutil.rmtree(lab.folder / name)
    assert list(mismatches(lab.study, lab.machine)) == []


def test_readings_that_are_no_part_of_the_study_are_none_of_its_summary(tmp_path):
    lab = Lab(tmp_path, multiverse={"tn_backward": ["exact"]})
    stage.run(lab.study, lab.folder.parent, lab.machine, ("tables", "audit", "summary"))
    assert not [line for line in mismatches(lab.study, lab.machine) if "summary.md" in line]
