"""Verify: a small cell is really run twice; every kind of difference is told."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from tnfdt import verify
from tnfdt.attack import cell as attack_cell
from tnfdt.bundle.pack import pack
from tnfdt.data.prepare import prepare
from tnfdt.evidence import ledger
from tnfdt.files.atomic import read_json, write_json
from tnfdt.files.records import identity
from tnfdt.study.machine import Machine, load_machine
from tnfdt.study.paths import Cell, StudyPaths
from tnfdt.study.schema import ROOT, UserError, read_yaml
from tnfdt.study.study import Limit, Study, load_study
from tnfdt.tables import stage as stage_tables
from tnfdt.train import cell as train_cell

CELL = Cell("digits", "wrn10_1", "tn_fdt", 0)
LIMIT = Limit(train=60, test=30)


@pytest.fixture(scope="module")
def machine() -> Machine:
    return load_machine(overrides={"device": "cpu", "study": "demo"})


@pytest.fixture(scope="module")
def study() -> Study:
    demo = load_study("demo")
    return replace(
        demo,
        limit=LIMIT,
        training=replace(demo.training, epochs=2, batch_size=20),
        attack=replace(demo.attack, steps=3, limit=10, epsilons=(0.1, 0.01)),
    )


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory, machine: Machine, study: Study) -> Path:
    """results/demo with one cell, trained for two epochs and attacked at two epsilons."""
    folder = tmp_path_factory.mktemp("verify") / "demo"
    data, out = folder / "data/digits", folder / "train" / CELL.path
    prepare("digits", data, data_dir=folder, limit=LIMIT)
    train_cell.run(
        study="demo",
        cell=CELL,
        out=out,
        data_dir=data,
        config=study.train_slice(CELL, machine),
        interpretation=study.interpretation,
        machine=machine,
    )
    for epsilon in study.attack.epsilons:
        attack_cell.run(
            out=folder / "attack" / CELL.path,
            train_dir=out,
            data_dir=data,
            epsilon=epsilon,
            config=study.attack_slice(epsilon),
            device=torch.device("cpu"),
            identity=identity("demo", CELL),
            progress=False,
        )
    (out / "model.safetensors").replace(folder.parent / "weights")
    return folder


@pytest.fixture
def copy(recorded: Path, tmp_path: Path) -> Path:
    shutil.copytree(recorded, tmp_path / "demo")
    return tmp_path / "demo"


def change(path: Path, key: str, value: Any) -> None:
    record = read_json(path)
    record["metrics"][key] = value
    write_json(path, record)


def test_a_cell_comes_out_the_same_without_its_weights(
    recorded: Path, machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    assert verify.run(recorded, CELL.path, machine) == 0
    shown = capsys.readouterr().out
    assert "the weights have the same bytes" in shown
    assert shown.splitlines()[-1].endswith("0 within rounding, 0 different")
    for name in ("train accuracy", "history loss", "attack ε=0.1 curve", "attack ε=0.01 robust"):
        assert name in shown


def test_a_changed_number_is_named(
    copy: Path, machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    change(copy / "attack" / CELL.path / "eps0.1.json", "robust_accuracy", 0.987)
    assert verify.run(copy, CELL.path, machine) == 1
    rows = [line for line in capsys.readouterr().out.splitlines() if line.endswith("  different")]
    assert len(rows) == 1
    assert "attack ε=0.1 robust_accuracy" in rows[0]
    assert "0.987" in rows[0]


def test_the_ledger_stands_in_for_the_records(
    copy: Path, machine: Machine, study: Study, capsys: pytest.CaptureFixture[str]
) -> None:
    stage_tables.run(study, copy.parent, machine, ["tables"])
    path = StudyPaths(copy).ledger
    written = json.loads(path.read_text())
    assert list(written["cells"]) == [CELL.path]
    assert path.stat().st_size < 6000
    shutil.rmtree(copy / "train")
    shutil.rmtree(copy / "attack")
    assert verify.run(copy, CELL.path, machine) == 0
    written["cells"][CELL.path]["train"]["metrics"]["loss"] *= 1.001
    path.write_text(json.dumps(written))
    assert verify.run(copy, CELL.path, machine) == 1
    assert "train loss" in capsys.readouterr().out


def test_other_data_is_told_before_anything_runs(
    copy: Path, machine: Machine, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    monkeypatch.setattr(train_cell, "run", lambda **_: pytest.fail("trained"))
    shutil.rmtree(copy / "data")  # prepared anew it is the demo's, without this test's limit
    assert verify.run(copy, CELL.path, machine) == 1
    assert "fingerprint" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("before", "after", "verdict"),
    [
        (0.5, 0.5, verify.IDENTICAL),
        (0.5, 0.5000001, verify.ROUNDING),
        (0.5, 0.50002, verify.DIFFERENT),
        (26031 / 26032, 26030 / 26032, verify.DIFFERENT),
        (0.0, 1e-12, verify.ROUNDING),
        (None, None, verify.IDENTICAL),
        (None, 0.5, verify.DIFFERENT),
        (0.5, float("nan"), verify.DIFFERENT),
        ([1.0, 2.0], [1.0, 2.0], verify.IDENTICAL),
        ([1.0, 2.0], [1.0, 2.000001], verify.ROUNDING),
        ([1.0, 2.0], [1.000001, 3.0], verify.DIFFERENT),
        ([1.0], [1.0, 1.0], verify.DIFFERENT),
    ],
)
def test_verdicts(before: Any, after: Any, verdict: str) -> None:
    assert verify.verdict(before, after) == verdict


def test_what_a_clock_tells_is_not_compared(recorded: Path) -> None:
    known = ledger.read_cell(recorded, CELL, CELL)
    names = [row.name for row in verify.compare(known, known)]
    assert not [name for name in names if "second" in name or "memory" in name]
    assert len(names) > 15


@pytest.mark.parametrize(
    "text", ["", "digits", "digits/wrn10_1/tn/0", "a/b/c/seedx", "a/b/c/d/seed0"]
)
def test_a_bad_cell_is_told_in_a_line(recorded: Path, machine: Machine, text: str) -> None:
    with pytest.raises(UserError, match="digits/wrn10_1/tn/seed0"):
        verify.run(recorded, text, machine)


def test_an_unknown_cell_or_folder_is_told_in_a_line(recorded: Path, machine: Machine) -> None:
    with pytest.raises(UserError, match="neither"):
        verify.run(recorded, "digits/wrn10_1/tn/seed7", machine)
    with pytest.raises(UserError, match="not a folder"):
        verify.run(recorded / "nowhere", CELL.path, machine)


@pytest.fixture
def bundled(copy: Path, machine: Machine) -> tuple[str, Machine]:
    """The file of the study in small, and a machine on which it can be packed."""
    limits = {"limit": {"train": LIMIT.train, "test": LIMIT.test}}
    small = {"training": {"epochs": 2, "batch_size": 20, "lr_drop_every": 1}}
    attack = {"attack": {"steps": 3, "limit": 10, "epsilons": [0.1, 0.01]}}
    file = copy.parent / "demo.yaml"
    raw = read_yaml(ROOT / "config/studies/demo.yaml")
    file.write_text(yaml.safe_dump({**raw, **limits, **small, **attack}, sort_keys=False))
    return str(file), replace(machine, results_dir=str(copy.parent))


def test_a_cell_of_a_bundle_comes_out_the_same_where_nothing_else_is(
    bundled: tuple[str, Machine], copy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = shutil.move(pack(*bundled), tmp_path / "mailed.zip")
    shutil.rmtree(copy)
    elsewhere = replace(bundled[1], results_dir=str(tmp_path / "elsewhere"))
    assert verify.run_bundle(path, CELL.path, elsewhere) == 0
    assert "0 within rounding, 0 different" in capsys.readouterr().out
    with pytest.raises(UserError, match=r"mailed\.zip: demo/train/.* is not there; .*--weights"):
        verify.run_bundle(path, CELL.path, elsewhere, attack_only=True)


def test_attacks_alone_of_a_cell_without_any_are_one_line(copy: Path, machine: Machine) -> None:
    shutil.rmtree(copy / "attack")
    with pytest.raises(UserError, match="has no attack yet"):
        verify.run(copy, CELL.path, machine, attack_only=True)


def test_with_weights_the_attacks_alone_are_run_again(
    recorded: Path,
    bundled: tuple[str, Machine],
    copy: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shutil.copy(recorded.parent / "weights", copy / "train" / CELL.path / "model.safetensors")
    path = pack(*bundled, weights=True)
    monkeypatch.setattr(train_cell, "run", None)  # nothing is trained
    assert verify.run_bundle(path, CELL.path, bundled[1], attack_only=True) == 0
    told = capsys.readouterr().out
    assert "attack ε=0.1 robust_accuracy" in told
    assert "train accuracy" not in told
    assert "0 within rounding, 0 different" in told
