"""Attack and audit with their files: the same bytes after any kill, one line for bad input."""

import copy
import json
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.integration.conftest import SMALL, Project, environment
from tnfdt import devices
from tnfdt.attack import batches as partial_module
from tnfdt.attack import cell as attack_cell
from tnfdt.attack.trajectory import pgd_trajectory
from tnfdt.audit import cell as audit_cell
from tnfdt.data.prepared import load
from tnfdt.files.atomic import read_arrays, sha256_file
from tnfdt.models import set_backward
from tnfdt.study.attack_settings import REL_STEPSIZE
from tnfdt.study.schema import UserError

CPU = torch.device("cpu")
CONFIG = {
    "steps": 6,
    "rel_stepsize": REL_STEPSIZE,
    "random_start": False,
    "batch_size": 8,
    "limit": 20,
    "precision": "fp32",
}
AUDIT = {
    "epsilons": [0.1, 0.01],
    "steps": 6,
    "rel_stepsize": REL_STEPSIZE,
    "random_start": False,
    "restarts": 2,
    "black_box": 0,
    "limit": 20,
    "batch_size": 8,
    "precision": "fp32",
}


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Two small cells, trained."""
    project = Project(tmp_path_factory.mktemp("trained"))
    project.write(copy.deepcopy(SMALL))
    project.tnfdt("data", "digits")
    for method in ("vanilla", "tn_fdt"):
        cell = f"digits/wrn10_1/{method}/seed0"
        project.tnfdt("train", cell, env={"MLFLOW_TRACKING_URI": "none"})
    return project


def train_dir(project, method="tn_fdt"):
    return project.results / f"train/digits/wrn10_1/{method}/seed0"


def arguments(project, method="tn_fdt", **change):
    identity = {"study": "small", "dataset": "digits", "model": "wrn10_1"}
    base = {
        "train_dir": train_dir(project, method),
        "data_dir": project.results / "data/digits",
        "device": CPU,
        "identity": {**identity, "method": method, "seed": 0},
        "progress": False,
    }
    return {**base, **change}


def attack(project, out, epsilon=0.1, method="tn_fdt", config=CONFIG, **change):
    return attack_cell.run(
        out=out, epsilon=epsilon, config=config, **arguments(project, method, **change)
    )


def run_audit(project, out, method="tn_fdt", config=AUDIT, **change):
    base = arguments(project, method, vanilla_dir=train_dir(project, "vanilla"), **change)
    return audit_cell.run(out=out, config=config, **base)


@pytest.fixture(scope="module")
def whole(trained, tmp_path_factory):
    """An attack nobody disturbed."""
    out = tmp_path_factory.mktemp("whole")
    return out, attack(trained, out)


def hashes(out):
    return {path.name: sha256_file(path) for path in sorted(out.glob("*.npz"))}


def test_the_files_agree_with_each_other_and_with_the_images(trained, whole):
    out, record = whole
    arrays, clean = read_arrays(out / "eps0.1.npz"), read_arrays(train_dir(trained) / "clean.npz")
    correct, indices = arrays["correct"], arrays["indices"]
    assert indices.dtype == np.int64
    assert (correct.dtype, correct.shape) == (np.bool_, (6, 20))
    assert {key: str(value.dtype) for key, value in clean.items()} == {
        "correct": "bool",
        "predictions": "int16",
    }
    labels = load(trained.results / "data/digits").test_y.numpy()
    np.testing.assert_array_equal(clean["correct"], clean["predictions"] == labels)
    metrics = record["metrics"]
    assert metrics["clean_accuracy"] == clean["correct"][indices].mean()
    assert metrics["robust_accuracy"] == correct.mean()
    assert metrics["last_accuracy"] == correct[-1].mean()
    assert metrics["worst_accuracy"] == correct.all(0).mean()
    assert metrics["curve"] == correct.mean(1).tolist()
    assert len(metrics["loss"]) == len(metrics["gradient_norm"]) == 6
    assert record == json.loads((out / "eps0.1.json").read_text())
    assert (record["images"], record["epsilon"], record["config"]) == (20, 0.1, CONFIG)
    train = json.loads((train_dir(trained) / "record.json").read_text())
    assert train["metrics"]["accuracy"] == clean["correct"].mean()
    for key in ("model_sha256", "dataset_fingerprint", "interpretation"):
        assert record[key] == train[key]
    assert sorted(path.name for path in out.iterdir()) == ["eps0.1.json", "eps0.1.npz"]


def test_the_attack_sees_the_backward_pass_of_the_training(trained, whole):
    target = attack_cell.load_target(
        train_dir(trained), trained.results / "data/digits", CONFIG, CPU
    )
    images, labels = target.batch(slice(0, 8))
    correct = pgd_trajectory(
        set_backward(target.model, "paper"), images, labels, 0.1, steps=6
    ).correct
    np.testing.assert_array_equal(read_arrays(whole[0] / "eps0.1.npz")["correct"][:, :8], correct)


def test_the_precision_is_the_attacks_own_and_in_its_record(trained, whole, tmp_path, monkeypatch):
    """Whatever the training used; a slice from before the key is one in fp32."""
    asked, keys = [], ("study", "dataset", "model", "method", "seed")
    cell = {key: whole[1][key] for key in keys}
    monkeypatch.setattr(devices, "set_precision", asked.append)
    copied = tmp_path / "trained"
    shutil.copytree(train_dir(trained), copied)
    record = json.loads((copied / "record.json").read_text())
    record["config"]["precision"] = "tf32"
    (copied / "record.json").write_text(json.dumps(record))
    for config, expected in (
        (CONFIG, "fp32"),
        (CONFIG | {"precision": "tf32"}, "tf32"),
        ({key: value for key, value in CONFIG.items() if key != "precision"}, "fp32"),
    ):
        made = attack_cell.run(
            out=tmp_path / "out",
            train_dir=copied,
            data_dir=trained.results / "data/digits",
            epsilon=0.1,
            config=config,
            device=CPU,
            identity=cell,
            progress=False,
        )
        assert made["config"]["precision"] == asked.pop() == expected


def test_the_same_images_for_every_method_and_epsilon(trained, whole, tmp_path):
    attack(trained, tmp_path / "vanilla", method="vanilla")
    attack(trained, tmp_path / "other", epsilon=0.01)
    files = (tmp_path / "vanilla/eps0.1.npz", tmp_path / "other/eps0.01.npz")
    indices = [read_arrays(path)["indices"] for path in files]
    for found in indices:
        np.testing.assert_array_equal(found, read_arrays(whole[0] / "eps0.1.npz")["indices"])
    assert indices[0].tolist() != list(range(20))


def test_without_a_limit_every_test_image_is_attacked(trained, tmp_path):
    record = attack(trained, tmp_path, config={**CONFIG, "limit": None, "steps": 1})
    assert record["images"] == 50
    assert read_arrays(tmp_path / "eps0.1.npz")["indices"].tolist() == list(range(50))


@pytest.mark.parametrize("random_start", [False, True])
def test_a_killed_attack_goes_on_and_ends_with_the_same_bytes(trained, tmp_path, random_start):
    config = {**CONFIG, "random_start": random_start, "batch_size": 2, "steps": 40}
    attack(trained, tmp_path / "whole", config=config)
    code = (
        "import sys, torch; from pathlib import Path; torch.set_num_threads(1);"
        "from tnfdt.attack import batches, cell; batches.SAVE_SECONDS = 0;"
        "cell.run(**eval(sys.argv[1], {'Path': Path, 'device': torch.device}))"
    )
    call = {**arguments(trained), "out": tmp_path / "cut", "epsilon": 0.1, "config": config}
    call["device"] = CPU
    text = repr(call).replace("PosixPath", "Path")
    process = subprocess.Popen([sys.executable, "-c", code, text], env=environment())
    partial = tmp_path / "cut/eps0.1.partial"
    while not partial.exists() and process.poll() is None:
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert 0 < read_arrays(partial)["correct"].shape[1] < 20
    calls = []

    def count(*args, **options):
        calls.append(1)
        return pgd_trajectory(*args, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attack_cell, "pgd_trajectory", count)
        attack(trained, tmp_path / "cut", config=config)
    assert 0 < len(calls) < 10
    assert hashes(tmp_path / "cut") == hashes(tmp_path / "whole")
    assert not partial.exists()


@pytest.mark.parametrize("kind", ["torn", "text", "foreign"])
def test_a_partial_file_of_no_use_is_reported_and_started_over(
    trained, whole, tmp_path, capsys, kind, monkeypatch
):
    partial = tmp_path / "eps0.1.partial"
    monkeypatch.setattr(partial_module, "SAVE_SECONDS", 0)
    if kind == "text":
        partial.write_text("not an archive")
    else:
        config = {**CONFIG, "steps": 5} if kind == "foreign" else CONFIG
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(attack_cell, "write_json", lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                attack(trained, tmp_path, config=config)
        if kind == "torn":
            partial.write_bytes(partial.read_bytes()[:-100])
    attack(trained, tmp_path)
    lines = capsys.readouterr().err.splitlines()
    reason = "belongs to another attack" if kind == "foreign" else "cannot be read"
    assert lines == [f"{partial} {reason}; the attack starts over"]
    assert hashes(tmp_path) == hashes(whole[0])


def copied(project, tmp_path):
    folder = tmp_path / "train"
    shutil.copytree(train_dir(project), folder)
    return folder


def edit(folder, **change):
    path = folder / "record.json"
    record = json.loads(path.read_text())
    path.write_text(json.dumps({**record, **change}))


def change_config(folder, **change):
    edit(folder, config={**json.loads((folder / "record.json").read_text())["config"], **change})


def other_classes(folder):
    state = load_file(folder / "model.safetensors")
    head = {key: value[:7].clone() for key, value in state.items() if "head.fc" in key}
    save_file({**state, **head}, folder / "model.safetensors")


def other_weights(folder):
    state = load_file(folder / "model.safetensors")
    save_file({key: value + 1 for key, value in state.items()}, folder / "model.safetensors")


BAD_TRAINING = {
    "classes": (other_classes, "is of 7 classes, its record says 10"),
    "architecture": (lambda f: change_config(f, model="wrn16_2"), "is not of a wrn16_2"),
    "weights": (other_weights, "is not the file its record.json was written for"),
    "unknown model": (lambda f: change_config(f, model="nonsense"), "no network 'nonsense'"),
    "fingerprint": (lambda f: edit(f, dataset_fingerprint="0" * 64), "is not the data that"),
    "no weights": (lambda f: (f / "model.safetensors").unlink(), "cannot be read"),
    "torn weights": (lambda f: (f / "model.safetensors").write_bytes(b"abc"), "cannot be read"),
    "no record": (lambda f: (f / "record.json").unlink(), "does not exist"),
    "empty record": (lambda f: (f / "record.json").write_text("{}"), "does not describe a network"),
    "list": (lambda f: (f / "record.json").write_text("[]"), "does not describe a network"),
}


@pytest.mark.parametrize("name", BAD_TRAINING)
def test_a_training_that_does_not_fit_is_refused_in_one_line(trained, tmp_path, name):
    spoil, message = BAD_TRAINING[name]
    folder = copied(trained, tmp_path)
    spoil(folder)
    for run in (attack, run_audit):
        with pytest.raises(UserError, match=message) as error:
            run(trained, tmp_path / "out", train_dir=folder)
        assert "\n" not in str(error.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("epsilon", [0.0, -1.0, float("nan"), float("inf")])
def test_no_ball_no_attack(trained, tmp_path, epsilon):
    with pytest.raises(UserError, match="epsilon is"):
        attack(trained, tmp_path / "out", epsilon=epsilon)
    with pytest.raises(UserError, match="epsilon is"):
        run_audit(trained, tmp_path / "out", config={**AUDIT, "epsilons": [0.1, epsilon]})
    assert not (tmp_path / "out").exists()


def test_no_test_images(trained, tmp_path, monkeypatch):
    empty = load(trained.results / "data/digits")
    object.__setattr__(empty, "test_x", empty.test_x[:0])
    object.__setattr__(empty, "test_y", empty.test_y[:0])
    monkeypatch.setattr(attack_cell, "load", lambda *_, **__: empty)
    with pytest.raises(UserError, match="no test images"):
        attack(trained, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_network_that_diverged_is_named_and_nothing_is_written(trained, tmp_path):
    folder = copied(trained, tmp_path)
    state = load_file(folder / "model.safetensors")
    key = next(key for key in state if "head.fc.weight" in key)
    save_file({**state, key: state[key] * float("nan")}, folder / "model.safetensors")
    edit(folder, model_sha256=sha256_file(folder / "model.safetensors"))
    with pytest.raises(UserError, match="did its training diverge"):
        attack(trained, tmp_path / "out", train_dir=folder)
    assert not list((tmp_path / "out").glob("*"))


@pytest.fixture(scope="module")
def audited(trained, tmp_path_factory):
    """An audit nobody disturbed, with every attack there is."""
    out = tmp_path_factory.mktemp("audit")
    return out, run_audit(trained, out, config={**AUDIT, "black_box": 4})


def test_the_audit_has_every_attack_and_a_badge(audited):
    out, record = audited
    assert record == json.loads((out / "audit.json").read_text())
    assert sorted(path.name for path in out.iterdir()) == ["audit.json", "audit.npz"]
    assert record["badge"]
    for entry in record["epsilons"].values():
        names = {"paper", "exact", "restarts", "steps_x2", "transfer", "noise", "black_box"}
        assert set(entry["attacks"]) == names
        full = [entry["attacks"][name]["worst_accuracy"] for name in names - {"black_box"}]
        assert 0 <= entry["worst_case"] <= min(full)
        assert all(set(i) == {"value", "limit", "tripped"} for i in entry["indicators"].values())
    assert set(record["indicators"]) == {"accuracy_not_falling", "chance_not_reached"}


def test_the_audit_starts_from_the_numbers_of_stage_three(whole, audited):
    """The same attack on the same images: the paper's number in the audit is the paper's number."""
    stored = read_arrays(audited[0] / "audit.npz")
    correct = read_arrays(whole[0] / "eps0.1.npz")["correct"]
    np.testing.assert_array_equal(stored["eps0.1_paper_correct"], correct)
    assert audited[1]["epsilons"]["0.1"]["attacks"]["paper"] == {
        key: whole[1]["metrics"][key]
        for key in ("robust_accuracy", "last_accuracy", "worst_accuracy")
    }


def test_the_exact_attack_is_the_first_half_of_the_doubled_one(trained, audited):
    target = attack_cell.load_target(
        train_dir(trained), trained.results / "data/digits", CONFIG, CPU
    )
    model = set_backward(target.model, "exact")
    parts = [slice(first, first + 8) for first in (0, 8, 16)]
    runs = [pgd_trajectory(model, *target.batch(part), 0.1, steps=6).correct for part in parts]
    stored = read_arrays(audited[0] / "audit.npz")
    np.testing.assert_array_equal(stored["eps0.1_exact_correct"], torch.cat(runs, 1))
    assert (stored["eps0.1_steps_x2_correct"][:6] == stored["eps0.1_exact_correct"]).all()


def test_without_pass_through_the_paper_s_attack_is_exact_and_nothing_transfers(trained, tmp_path):
    record = run_audit(trained, tmp_path, method="vanilla")
    for entry in record["epsilons"].values():
        assert entry["attacks"]["paper"] == entry["attacks"]["exact"]
        assert entry["indicators"]["gradient_misleads"]["value"] == 0
        assert "transfer" not in entry["attacks"]
    assert record["transfer_source"] is None


def test_an_audit_cut_short_goes_on_and_ends_with_the_same_bytes(
    trained, audited, tmp_path, monkeypatch
):
    monkeypatch.setattr(partial_module, "SAVE_SECONDS", 0)
    config, calls = {**AUDIT, "black_box": 4}, []

    def stops(*args, **options):
        calls.append(1)
        if len(calls) == 12:
            raise KeyboardInterrupt
        return pgd_trajectory(*args, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(audit_cell, "pgd_trajectory", stops)
        with pytest.raises(KeyboardInterrupt):
            run_audit(trained, tmp_path, config=config)
    assert not (tmp_path / "audit.json").exists()
    run_audit(trained, tmp_path, config=config)
    assert hashes(tmp_path) == hashes(audited[0])
    assert not list(tmp_path.glob("*.partial"))


def test_the_exact_gradient_is_followed_where_it_is_asked_for(trained, whole, tmp_path):
    record = attack(trained, tmp_path, config={**CONFIG, "gradient": "exact"})
    assert record["interpretation"]["attack_gradient"] == "exact"
    assert record["model_sha256"] == whole[1]["model_sha256"]
    assert record["metrics"]["loss"] != whole[1]["metrics"]["loss"]
    data = load(trained.results / "data/digits")
    chosen = attack_cell.choose_images(len(data.test_y), CONFIG["limit"])[:1]
    model = set_backward(attack_cell.load_model(train_dir(trained))[0], "exact")
    pixels, options = data.test_x[chosen].float() / 255, {"steps": CONFIG["steps"]}
    expected = pgd_trajectory(model, pixels, data.test_y[chosen], 0.1, **options)
    found = read_arrays(tmp_path / "eps0.1.npz")["correct"]
    assert (found[:, 0] == expected.correct[:, 0].numpy()).all()
