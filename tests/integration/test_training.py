"""Training: the same bytes twice, after any kill, and nothing at all after bad training."""

import copy
import json
import os
import random
import shutil
import signal
import subprocess
import time

import pytest

from tests.integration.conftest import SMALL, Project, environment
from tnfdt.files.atomic import sha256_file
from tnfdt.study.paths import TRAIN_FILES
from tnfdt.study.schema import ROOT
from tnfdt.train.checkpoint import EXIT_INTERRUPTED

CELL = "digits/wrn10_1/tn_fdt/seed0"


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A study of a few seconds a cell, trained once undisturbed."""
    project = Project(tmp_path_factory.mktemp("base"))
    study = copy.deepcopy(SMALL)
    study["training"] = {"epochs": 6, "lr_drop_every": 2, "batch_size": 50}
    project.write(study)
    project.tnfdt("data", "digits")
    project.tnfdt("train", CELL, "--set", "tracking_uri=none")
    return project


def folder(project, cell=CELL):
    return project.results / "train" / cell


def bytes_of(project, cell=CELL):
    names = ("model.safetensors", "history.csv", "clean.npz")
    return [sha256_file(folder(project, cell) / name) for name in names]


def fresh(base, tmp_path):
    """A project with the same study and data, and nothing trained."""
    project = Project(tmp_path)
    project.study.write_text(base.study.read_text())
    project.results.mkdir(parents=True)
    os.symlink(base.results / "data", project.results / "data")
    return project


def start(project, *args):
    command = ["tnfdt", "train", "--study", project.study.name, CELL, "--set", "tracking_uri=none"]
    return subprocess.Popen(
        [*command, *args],
        cwd=project.folder,
        stderr=subprocess.PIPE,
        text=True,
        env=environment() | {"PYTHONPATH": str(project.code)},
    )


def wait_for(path, process):
    while not path.exists() and process.poll() is None:
        time.sleep(0.01)


def test_the_same_cell_twice_gives_the_same_bytes(base, tmp_path):
    project = fresh(base, tmp_path)
    project.tnfdt("train", CELL, "--set", "tracking_uri=none")
    assert bytes_of(project) == bytes_of(base)
    assert not list(folder(project).glob("*checkpoint*"))


def test_a_finished_training_whose_files_snakemake_deleted_is_there_again(base, tmp_path):
    """Snakemake deletes the outputs of a job whose end it did not live to see."""
    project, quiet = fresh(base, tmp_path), ("--set", "tracking_uri=none")
    shutil.copytree(folder(base), folder(project))
    record = (folder(project) / "record.json").read_bytes()
    for name in TRAIN_FILES:
        (folder(project) / name).unlink()
    assert "trained already" in project.tnfdt("train", CELL, *quiet).stderr
    assert (folder(project) / "record.json").read_bytes() == record
    assert bytes_of(project) == bytes_of(base)
    for name in TRAIN_FILES:
        (folder(project) / name).unlink()
    kept = folder(project) / ".kept/record.json.kept"  # of other code
    kept.write_text(kept.read_text().replace('"sources": "', '"sources": "0'))
    assert "trained already" not in project.tnfdt("train", CELL, *quiet).stderr
    assert (folder(project) / "record.json").read_bytes() != record


class Checkout:
    """A copy of the project under git, for commits of its own."""

    def __init__(self, place):
        self.place = place
        for name in ("config", "tnfdt", "workflow"):
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, place / name, ignore=ignored)
        shutil.copy(ROOT / ".gitignore", place)  # compiled files are no change of the tree
        self.git("init", "--quiet")
        self.commit("pyproject.toml", (ROOT / "pyproject.toml").read_text())

    def git(self, *args):
        who = ("-c", "user.name=t", "-c", "user.email=t@example.org")
        command = ["git", "-C", str(self.place), *who, *args]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    def commit(self, name, text):
        (self.place / name).write_text(text)
        self.git("add", "-A")
        self.git("commit", "--quiet", "-m", name)


def test_a_checkpoint_is_continued_by_its_own_code_only(base, tmp_path):
    """Killed after epoch 3 of 6: a commit of documents goes on, a commit of the loss does not."""
    project = fresh(base, tmp_path)
    project.code, quiet = tmp_path / "code", ("--set", "tracking_uri=none")
    checkout = Checkout(project.code)
    process = start(project)
    told = iter(process.stderr.readline, "")
    assert any("epoch 3/6" in line for line in told)
    process.kill()
    process.communicate()
    saved = (folder(project) / "checkpoint.pt").read_bytes()
    checkout.commit("tnfdt/tables/notes.py", '"""Only a table."""')
    checkout.commit("README.md", "Only a document.")
    done = project.tnfdt("train", CELL, *quiet)
    assert "going on at epoch" in done.stderr
    assert bytes_of(project) == bytes_of(base)
    first = json.loads((folder(project) / "record.json").read_text())
    shutil.rmtree(folder(project))
    folder(project).mkdir()
    (folder(project) / "checkpoint.pt").write_bytes(saved)
    losses = project.code / "tnfdt/core/losses.py"
    changed = losses.read_text().replace("(log_p.exp() - targets)", "3 * (log_p.exp() - targets)")
    assert changed != losses.read_text()
    checkout.commit("tnfdt/core/losses.py", changed)
    done = project.tnfdt("train", CELL, *quiet)
    assert done.stderr.count("was written by other code") == 1
    assert "going on at" not in done.stderr
    second = json.loads((folder(project) / "record.json").read_text())
    assert second["commit"] == checkout.git("rev-parse", "HEAD")
    assert second["code"]["sources"] != first["code"]["sources"]
    assert second["code"]["torch"] == first["code"]["torch"]
    assert second["model_sha256"] != first["model_sha256"]


def test_ten_kills_at_random_instants_change_no_byte(base, tmp_path):
    """SIGKILL in start-up, in mid-epoch, in mid-checkpoint: checkpoints come every 0.1 s here."""
    project, rng, kills, resumed = fresh(base, tmp_path), random.Random(7), 0, 0
    often = ("--set", "checkpoint_minutes=0.002")
    while kills < 10:
        process = start(project, *often)
        checkpoint = folder(project) / "checkpoint.pt"
        before = checkpoint.stat().st_mtime_ns if checkpoint.exists() else 0
        deadline = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < deadline:
            if checkpoint.exists() and checkpoint.stat().st_mtime_ns != before:
                break
            time.sleep(0.005)
        time.sleep(rng.uniform(0, 0.1))
        process.kill()
        told = process.communicate()[1]
        resumed += "going on at" in told
        kills += 1
        if (folder(project) / "record.json").exists():
            assert bytes_of(project) == bytes_of(base)
            shutil.rmtree(folder(project))
    project.tnfdt("train", CELL, "--set", "tracking_uri=none")
    assert resumed >= 5
    assert bytes_of(project) == bytes_of(base)
    names = {path.name for path in folder(project).iterdir()}
    assert names <= {*TRAIN_FILES, ".lock", ".kept", "journal.jsonl"}


def test_sigterm_saves_and_exits_with_its_own_code(base, tmp_path):
    project = fresh(base, tmp_path)
    process = start(project)
    wait_for(folder(project) / "checkpoint.pt", process)
    process.send_signal(signal.SIGTERM)
    told = process.communicate(timeout=60)[1]
    assert process.returncode == EXIT_INTERRUPTED, told
    assert "the same command goes on" in told
    assert not (folder(project) / "record.json").exists()
    project.tnfdt("train", CELL, "--set", "tracking_uri=none")
    assert bytes_of(project) == bytes_of(base)


@pytest.mark.parametrize("damage", ["truncated", "foreign"])
def test_a_useless_checkpoint_starts_over(base, tmp_path, damage):
    project = fresh(base, tmp_path)
    process = start(project)
    checkpoint = folder(project) / "checkpoint.pt"
    wait_for(checkpoint, process)
    process.kill()
    process.communicate()
    if damage == "truncated":
        checkpoint.write_bytes(checkpoint.read_bytes()[:1000])
    else:
        text = project.study.read_text()
        project.study.write_text(text.replace("epochs: 6", "epochs: 5"))
    done = project.tnfdt("train", CELL, "--set", "tracking_uri=none")
    assert done.stderr.count("training starts over") == 1
    if damage == "truncated":
        assert bytes_of(project) == bytes_of(base)


def test_two_processes_on_one_cell_train_it_once(base, tmp_path):
    project = fresh(base, tmp_path)
    both = [start(project), start(project)]
    told = [process.communicate(timeout=120)[1] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert sum("trained already" in text for text in told) == 1
    assert bytes_of(project) == bytes_of(base)


def test_methods_start_from_the_same_weights_and_see_the_same_order(base):
    from tnfdt.data.prepared import load
    from tnfdt.study.machine import load_machine
    from tnfdt.study.study import load_study
    from tnfdt.train.batch_sources import make_source
    from tnfdt.train.recipe import build_model

    study, machine = load_study("demo"), load_machine()
    data = load(base.results / "data" / "digits")
    weights, firsts = {}, {}
    for cell in study.cells:
        if cell.seed == 0:
            config = study.train_slice(cell, machine)
            state = build_model(config, data.num_classes).state_dict()
            weights[cell.method] = {key: value.sum().item() for key, value in state.items()}
            source = make_source(config, data)
            firsts[cell.method] = source.batch(source.draw(0, 0))
    assert all(state == weights["vanilla"] for state in weights.values())
    assert firsts["vanilla"].images.equal(firsts["tn"].images)
    assert firsts["ov"].images.equal(firsts["fdt"].images)
    assert firsts["fdt"].table.equal(firsts["tn_fdt"].table)
    assert firsts["ov"].table is None
    assert firsts["ov"].classes.equal(firsts["fdt"].table[1].argmax(1))


def test_bad_training_is_not_a_result(base, tmp_path):
    project = fresh(base, tmp_path)
    study = copy.deepcopy(SMALL)
    study["training"] = {"epochs": 3, "lr": 100, "weight_decay": 1, "batch_size": 10}
    project.write(study)
    cell = "digits/wrn10_1/vanilla/seed0"
    done = project.tnfdt("train", cell, "--set", "tracking_uri=none", check=False)
    line = done.stderr.strip().splitlines()[-1]
    assert done.returncode == 2
    for word in ("diverged", "epoch", "step", "learning rate"):
        assert word in line
    assert "Traceback" not in done.stderr
    assert not (folder(project, cell) / "record.json").exists()


def test_the_record_says_what_was_done(base):
    record = json.loads((folder(base) / "record.json").read_text())
    assert record["config"]["training"]["epochs"] == 6
    assert record["config"]["tensor_norm"] == "paper"
    assert record["interpretation"]["blend_amount"] == "uniform"
    assert record["model_sha256"] == sha256_file(folder(base) / "model.safetensors")
    manifest = json.loads((base.results / "data/digits/manifest.json").read_text())
    assert record["dataset_fingerprint"] == manifest["fingerprint"]
    metrics = record["metrics"]
    assert 0 <= metrics["accuracy"] <= metrics["accuracy_best"] <= 1
    assert metrics["images_per_second"] > 0
    assert 0 < metrics["cpu_seconds_per_image"] < 1
    assert metrics["duration_seconds"] > 0
    assert record["hardware"]["device"] == "cpu"
