"""Bad input, at every entry: one line that names it and says what to do, and nothing is changed.

A small finished study is damaged in one way a case. The command line runs inside this process,
so that many cases take seconds; a few run as real commands and through Snakemake.
"""

import contextlib
import gzip
import hashlib
import json
import os
import shutil
import socket
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
import torchvision
import yaml

from tests.integration.conftest import Project, environment
from tests.unit.data.miniature import ARCHIVES, Miniature
from tnfdt.attack import batches as partial
from tnfdt.attack import cell as attack_cell
from tnfdt.cli import main
from tnfdt.study import machine
from tnfdt.study import study as config
from tnfdt.tables import stage as stage_tables
from tnfdt.tracking import sqlite_store
from tnfdt.train import checkpoint

STUDY = {
    "grid": {
        "table1": {"datasets": ["digits"], "models": ["wrn10_1"], "methods": ["vanilla", "tn"]},
        "table2": {"datasets": ["own"], "models": ["wrn10_1"], "methods": ["vanilla"]},
    },
    "seeds": [0],
    "methods": {"vanilla": {}, "tn": {"tensor_norm": True}},
    "datasets": {"digits": {}, "own": {"path": "own.npz"}},
    "limit": {"train": 100, "test": 20},
    "training": {"epochs": 1},
    "attack": {"epsilons": [0.1], "steps": 3, "limit": 10},
    "audit": {"limit": 5, "restarts": 1, "include": True},
}
CELL = "digits/wrn10_1/tn/seed0"
TRAIN, ATTACK = f"results/small/train/{CELL}", f"results/small/attack/{CELL}"
AUDIT, DATA = f"results/small/audit/{CELL}/audit.json", "results/small/data/digits"
RECORD, EPSILON, WEIGHTS = f"{TRAIN}/record.json", f"{ATTACK}/eps0.1", f"{TRAIN}/model.safetensors"
LEDGER, CLEAN = "results/small/tables/cells.json", f"{TRAIN}/clean.npz"
LABELS = np.arange(20) % 2
OWN = {
    "train_x": np.zeros((20, 16, 16, 3), np.uint8),
    "train_y": LABELS,
    "test_x": np.zeros((4, 16, 16, 3), np.uint8),
    "test_y": LABELS[:4],
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A study of two cells, run to the end in this process."""
    folder = tmp_path_factory.mktemp("bad input")
    (folder / "small.yaml").write_text(yaml.safe_dump(STUDY))
    np.savez(folder / "own.npz", **OWN)
    shutil.copytree(config.ROOT / "config", folder / "config")
    threads = torch.get_num_threads()
    with pytest.MonkeyPatch.context() as patch:
        enter(folder, patch)
        vanilla = CELL.replace("tn", "vanilla")
        for argv in (
            ["data", "digits"],
            ["train", CELL],
            ["train", vanilla],
            ["attack", CELL, "--epsilon", "0.1"],
            ["attack", vanilla, "--epsilon", "0.1"],
            ["audit", CELL],
        ):
            assert main(argv) == 0
    torch.set_num_threads(threads)
    return folder


def enter(folder, patch):
    patch.chdir(folder)
    patch.setenv("TNFDT_STUDY", "small.yaml")
    patch.setenv("TNFDT_SET", "device=cpu\ntracking_uri=none")
    patch.delenv("MLFLOW_TRACKING_URI", raising=False)
    patch.setattr(config, "ROOT", folder)
    patch.setattr(machine, "ROOT", folder)
    patch.setattr(stage_tables, "CLAIMS", Path("config/claims.yaml"))
    patch.setattr(stage_tables, "PUBLISHED", Path("config/published.csv"))
    patch.setattr(os, "execve", lambda *_: pytest.fail("the MLflow server was started"))


@pytest.fixture
def folder(finished, tmp_path, monkeypatch):
    """A copy of the study that a test may damage, as the working folder."""
    copy = shutil.copytree(finished, tmp_path / "work")
    enter(copy, monkeypatch)
    return copy


def listing(folder):
    """Every file below a folder with its hash and its time, and every folder."""
    return {
        path.relative_to(folder).as_posix(): (
            (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns)
            if path.is_file()
            else None
        )
        for path in folder.rglob("*")
    }


def run(argv, capsys):
    """Exit code and stderr of one command."""
    capsys.readouterr()
    try:
        code = main(argv)
    except SystemExit as stopped:
        code = stopped.code
    return code, capsys.readouterr().err


# ---- how to damage: each gives a function of the working folder


def study(change):
    """Edit the study as its YAML mapping."""

    def damage(folder):
        raw = json.loads(json.dumps(STUDY))
        change(raw)
        (folder / "small.yaml").write_text(yaml.safe_dump(raw))

    return damage


def put(path, content):
    """Write text or bytes in place of a file."""

    def damage(folder):
        data = content if isinstance(content, bytes) else content.encode()
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_bytes(data)

    return damage


def cut(path):
    """Only the first half of a file is there."""

    def damage(folder):
        data = (folder / path).read_bytes()
        (folder / path).write_bytes(data[: len(data) // 2])

    return damage


def flip(path, where=-1):
    """One byte of a file is another; by default the last."""

    def damage(folder):
        data = bytearray((folder / path).read_bytes())
        data[where] ^= 0xFF
        (folder / path).write_bytes(bytes(data))

    return damage


def drop(path):
    def damage(folder):
        target = folder / path
        shutil.rmtree(target) if target.is_dir() else target.unlink()

    return damage


def record(path, keys, value):
    """Set a value of a JSON file, by its dotted key; `...` takes it away."""

    def damage(folder):
        whole = inner = json.loads((folder / path).read_text())
        *parents, last = keys.split(".")
        for key in parents:
            inner = inner[key]
        inner.update({last: value}) if value is not ... else inner.pop(last)
        (folder / path).write_text(json.dumps(whole))

    return damage


def arrays(path, **changes):
    """Replace arrays of an .npz; None takes one away."""

    def damage(folder):
        found = dict(np.load(folder / path)) | changes
        kept = {key: value for key, value in found.items() if value is not None}
        np.savez(folder / path, **kept)

    return damage


def folder_named(path):
    def damage(folder):
        drop(path)(folder)
        (folder / path).mkdir()

    return damage


def file_named(path):
    def damage(folder):
        (folder / path).write_text("a file")

    return damage


def nothing(folder):
    """The arguments are bad by themselves."""


class Case(NamedTuple):
    """One bad input: the damage, the command, and what its line must hold."""

    damage: object
    command: str
    words: tuple[str, ...]

    @property
    def argv(self):
        return [word.replace("CELL", CELL) for word in self.command.split()]


def in_study(change, *words):
    return Case(study(change), "train CELL", ("small.yaml", *words))


def in_readings(*words, **readings):
    return in_study(lambda s: s.update(multiverse=readings), *words)


def in_tn(*words, **switches):
    return in_study(lambda s: s["methods"]["tn"].update(switches), *words)


def in_model(name, *words):
    damage = study(lambda s: s["grid"]["table1"].update(models=[name]))
    return Case(damage, f"train digits/{name}/tn/seed0", (name[:9], *words))


BOMB = "a: &a [0]\n" + "".join(  # every list holds ten times the one before
    f"{new}: &{new} [{', '.join([f'*{old}'] * 10)}]\n"
    for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)

STUDIES = {
    "empty file": Case(put("small.yaml", ""), "status", ("small.yaml", "mapping")),
    "not YAML": Case(put("small.yaml", "a: ["), "status", ("small.yaml", "not valid YAML")),
    "binary": Case(put("small.yaml", b"\xff\xfe\x00"), "status", ("small.yaml", "cannot be read")),
    "a list": Case(put("small.yaml", "[1, 2]"), "status", ("small.yaml", "mapping")),
    "key twice": Case(put("small.yaml", "seeds: [0]\nseeds: [1]"), "status", ("seeds", "twice")),
    "number as key": Case(put("small.yaml", "1: 2"), "status", ("small.yaml", "not a text")),
    "tag": Case(put("small.yaml", "seeds: !!bool maybe"), "status", ("small.yaml", "YAML")),
    "code": Case(
        put("small.yaml", "seeds: !!python/object/apply:os.system ['touch run']"),
        "status",
        ("small.yaml", "not valid YAML"),
    ),
    "eats itself": Case(
        put("small.yaml", yaml.safe_dump(STUDY).replace("seeds:\n- 0", "seeds: &a [*a, *a]")),
        "status",
        ("small.yaml", "holds itself"),
    ),
    "endless number": Case(
        put("small.yaml", yaml.safe_dump(STUDY).replace("- 0\n", f"- 0x{'f' * 9999}\n")),
        "status",
        ("small.yaml", "digits"),
    ),
    "a folder": Case(folder_named("small.yaml"), "status", ("small.yaml", "path of a .yaml")),
    "missing": Case(drop("small.yaml"), "status", ("small.yaml", "demo, fmnist, mini")),
    "unknown key": in_study(lambda s: s.update(colour="red"), "colour", "allowed", "training"),
    "no seeds": in_study(lambda s: s.pop("seeds"), "seeds", "required"),
    "seed a fraction": in_study(lambda s: s.update(seeds=[1.0]), "seeds.0", "1.0", "integer"),
    "seed negative": in_study(lambda s: s.update(seeds=[-1]), "seeds.0", "-1", "minimum"),
    "seed a text": in_study(lambda s: s.update(seeds=["0"]), "seeds.0", "'0'", "integer"),
    "lr NaN": in_study(lambda s: s["training"].update(lr=float("nan")), "training.lr", "nan"),
    "epochs infinite": in_study(lambda s: s["training"].update(epochs=float("inf")), "epochs"),
    "lr negative": in_study(lambda s: s["training"].update(lr=-0.1), "training.lr", "-0.1"),
    "batch of 1": in_study(lambda s: s["training"].update(batch_size=1), "batch_size", "minimum"),
    "epsilon NaN": in_study(lambda s: s["attack"].update(epsilons=[float("nan")]), "epsilons.0"),
    "epsilon 0": in_study(lambda s: s["attack"].update(epsilons=[0]), "attack.epsilons.0"),
    "epsilon too fine": in_study(
        lambda s: s["attack"].update(epsilons=[0.1, 0.10000001]), "0.10000001", "digits", "0.1"
    ),
    "method unknown": in_study(
        lambda s: s["grid"]["table1"].update(methods=["magic"]), "magic", "tn, vanilla"
    ),
    "method half": in_study(
        lambda s: s["methods"]["tn"].update(blend="harmonic"), "methods.tn", "target"
    ),
    "dataset undefined": in_study(
        lambda s: s["grid"]["table1"].update(datasets=["c1"]), "c1", "digits, own"
    ),
    "dataset unknown": Case(
        study(lambda s: s["datasets"].update(own={})), "data own", ("own", "path", ".npz")
    ),
    "model unknown": Case(
        study(lambda s: s["grid"]["table1"].update(models=["resnet35"])),
        "train digits/resnet35/tn/seed0",
        ("resnet35", "did you mean"),
    ),
    "model without cifar stem": Case(
        study(lambda s: s["grid"]["table1"].update(models=["vit_tiny_patch16_224"])),
        "train digits/vit_tiny_patch16_224/vanilla/seed0",
        ("vit_tiny_patch16_224", "imagenet"),
    ),
    "model unknown to the plan": Case(
        study(lambda s: s["grid"]["table1"].update(models=["resnet35"])),
        "plan --gpu a100",
        ("resnet35", "did you mean"),
    ),
    "name with a newline": in_study(
        lambda s: s["methods"].update({"tn\n": {}}), "tn", "safe in paths"
    ),
    "name outside": in_study(lambda s: s["methods"].update({"../tn": {}}), "../tn", "safe"),
    "name too long": in_study(lambda s: s["methods"].update({"a" * 999: {}}), "aaa", "at most 64"),
    "audit seed": in_study(lambda s: s["audit"].update(seeds=[7]), "audit.seeds", "7"),
    "limit below classes": Case(
        study(lambda s: s["limit"].update(train=5)), "data digits", ("limit.train", "10 or more")
    ),
    "path with a zero byte": in_study(
        lambda s: s["datasets"]["own"].update(path="a\0b.npz"), "datasets.own.path"
    ),
    "shift beyond the image": Case(
        study(lambda s: s["datasets"]["digits"].update(augment={"shift": 64})),
        "train --force CELL",
        ("augment.shift", "64", "16x16"),
    ),
    "aliases that explode": Case(put("small.yaml", BOMB), "status", ("small.yaml", "20,000")),
    "10,000 unknown keys": Case(
        put("small.yaml", "".join(f"key{i}: 1\n" for i in range(10_000))),
        "status",
        ("small.yaml", "unknown key key0", "allowed"),
    ),
    "10,000 bad methods": in_study(
        lambda s: s.update(methods={f"m{i}": {"colour": 1} for i in range(9_000)}), "methods.m"
    ),
    "merge key": Case(
        put("small.yaml", "a: &a {x: 1}\nb: {<<: *a}"), "status", ("small.yaml", "not valid YAML")
    ),
    "nested too deep": Case(put("small.yaml", "[" * 5000), "status", ("small.yaml", "YAML")),
    "tabs": Case(put("small.yaml", "grid:\n\ttable1: 1"), "status", ("small.yaml", "YAML")),
    "two documents": Case(put("small.yaml", "a: 1\n---\nb: 2"), "status", ("small.yaml", "YAML")),
    "model too deep": in_model("wrn1000000_1", "up to 1000"),
    "model too wide": in_model("wrn28_65", "width 1 to 64"),
    "model depth": in_model("wrn11_1", "10, 16, 22"),
    "model of many digits": in_model(f"wrn{'9' * 50}_1", "wrn999"),
    "seed twice": in_study(lambda s: s.update(seeds=[0, 0]), "seeds"),
    "seed too large": in_study(lambda s: s.update(seeds=[2**32]), "seeds.0", "maximum"),
    "seeds a number": in_study(lambda s: s.update(seeds=3), "seeds", "array"),
    "no grid": in_study(lambda s: s.update(grid={}), "grid"),
    "table 3": in_study(lambda s: s["grid"].update(table3={}), "table3", "datasets"),
    "no methods": in_study(lambda s: s.update(methods={}), "methods"),
    "tensor_norm a text": in_study(
        lambda s: s["methods"]["tn"].update(tensor_norm="yes"), "methods.tn.tensor_norm", "boolean"
    ),
    "series unknown": in_study(
        lambda s: s["methods"]["tn"].update(blend="fibonacci"), "methods.tn.blend", "fibonacci"
    ),
    "interpretation unknown": in_study(
        lambda s: s.update(interpretation={"stems": "cifar"}), "interpretation", "stems", "stem"
    ),
    "stem unknown": in_study(
        lambda s: s.update(interpretation={"stem": "mnist"}), "interpretation.stem", "mnist"
    ),
    "epochs 0": in_study(lambda s: s["training"].update(epochs=0), "training.epochs", "minimum"),
    "momentum 1": in_study(lambda s: s["training"].update(momentum=1), "training.momentum"),
    "decay negative": in_study(lambda s: s["training"].update(weight_decay=-1), "weight_decay"),
    "optimizer": in_study(lambda s: s["training"].update(optimizer="adam"), "adam", "sgd"),
    "epsilon above 1": in_study(lambda s: s["attack"].update(epsilons=[8]), "epsilons.0", "8"),
    "steps 0": in_study(lambda s: s["attack"].update(steps=0), "attack.steps", "minimum"),
    "step size 0": in_study(lambda s: s["attack"].update(rel_stepsize=0), "rel_stepsize"),
    "attack nobody": in_study(lambda s: s["attack"].update(limit=0), "attack.limit", "null"),
    "restarts 0": in_study(lambda s: s["audit"].update(restarts=0), "audit.restarts", "minimum"),
    "mean of two": in_study(lambda s: s["datasets"]["own"].update(mean=[1, 2]), "own.mean"),
    "mean too bright": in_study(lambda s: s["datasets"]["own"].update(mean=[0, 0, 999]), "mean.2"),
    "shift negative": in_study(
        lambda s: s["datasets"]["own"].update(augment={"shift": -1}), "augment.shift", "minimum"
    ),
    "path an address": in_study(
        lambda s: s["datasets"]["own"].update(path="https://me:secret@host/own.npz"),
        "datasets.own.path",
        "https://***@host",
    ),
    "readings a text": in_readings("multiverse.tn_backward", "array", tn_backward="exact"),
    "readings the study's own": in_readings("tn_backward", "paper", "own", tn_backward=["paper"]),
    "readings of nobody": in_readings("ov_target", "no method", ov_target=["sampled"]),
    "readings combined": in_readings("all_of", "stem", tn_backward=["exact"], all_of=["stem"]),
    "readings included": in_readings("multiverse.include", "list some", include=True),
    "looks shrink": in_study(lambda s: s.update(seeds={"looks": [5, 3]}), "seeds.looks", "grow"),
    "looks of one": in_study(lambda s: s.update(seeds={"looks": [1, 3]}), "seeds.looks.0", "1"),
    "looks forgotten": Case(nothing, "next", ("small", "no looks", "seeds")),
    "looks ahead": Case(
        lambda f: (
            study(lambda s: s.update(seeds={"looks": [2, 3]}))(f),
            put("results/small/looks.json", '{"look": 99, "rows": {}, "seen": []}')(f),
        ),
        "status",
        ("looks.json", "99", "restore it"),
    ),
    "autoattack a switch": in_study(lambda s: s["audit"].update(autoattack=True), "autoattack"),
    "autoattack nowhere": in_study(
        lambda s: s["audit"].update(autoattack={"epsilons": []}), "autoattack.epsilons"
    ),
    "adversarial half": in_tn("adversarial", "steps", adversarial={"epsilon": 0.1}),
    "adversarial beyond": in_tn("epsilon", "2", adversarial={"epsilon": 2, "steps": 1}),
    "mix of a blend": in_tn(
        "`blend`", "`mix`", mix="mixup", blend="harmonic", target="distribution"
    ),
    "mix unknown": in_tn("methods.tn.mix", "mixdown", mix="mixdown"),
    "gradient without TN": in_study(
        lambda s: s["methods"]["vanilla"].update(attack_gradient="exact"),
        "no effect",
        "tensor_norm",
    ),
    "control alone": in_study(
        lambda s: (
            s["methods"]["tn"].update(mix="mixup"),
            s["grid"]["table1"].update(methods=["tn"]),
        ),
        "control",
        "vanilla",
    ),
    "flip a number": in_study(
        lambda s: s["datasets"]["own"].update(augment={"flip": 1}), "augment.flip", "boolean"
    ),
}

SETTINGS = {
    "threads 0": Case(nothing, "status --set threads=0", ("threads", "0", "minimum")),
    "threads a fraction": Case(nothing, "status --set threads=2.0", ("threads", "2.0", "integer")),
    "gpu_slots -1": Case(nothing, "status --set gpu_slots=-1", ("gpu_slots", "-1", "minimum")),
    "device tpu": Case(nothing, "status --set device=tpu", ("device", "tpu", "auto")),
    "device with a newline": Case(nothing, 'status --set device="cpu\\n"', ("device", "cpu")),
    "precision": Case(nothing, "status --set precision=fp9", ("precision", "fp9", "bf16")),
    "a date": Case(nothing, "status --set threads=2001-99-99", ("threads", "2001-99-99")),
    "a bad tag": Case(nothing, "status --set threads=!!int", ("threads", "!!int")),
    "not a pair": Case(nothing, "status --set threads", ("threads", "key=value")),
    "no key": Case(nothing, "status --set =4", ("=4", "key=value")),
    "unknown": Case(nothing, "status --set colour=red", ("colour", "allowed", "gpu_slots")),
    "infinite": Case(nothing, "status --set checkpoint_minutes=.inf", ("checkpoint_minutes",)),
    "no CUDA here": Case(nothing, "train --force CELL --set device=cuda:99", ("cuda:99", "cpu")),
    "no CUDA for a plan": Case(nothing, "plan --set device=cuda:99", ("cuda:99", "cpu")),
    "data_dir a file": Case(
        file_named("data"), "data own --set data_dir=data", ("data_dir", "data", "folder")
    ),
    "results_dir a file": Case(
        file_named("file"), "data own --set results_dir=file", ("results_dir", "file", "folder")
    ),
    "results_dir in a file": Case(
        file_named("file"), "data own --set results_dir=file/in", ("file", "folder")
    ),
    "tables into a file": Case(
        file_named("results/empty"),
        "tables --set results_dir=results/empty/in",
        ("results/empty", "folder"),
    ),
    "study a number": Case(nothing, "verify results/small --cell CELL --set study=5", ("study",)),
}
TRACKING = {
    "ftp": Case(nothing, "track --set tracking_uri=ftp://x", ("tracking_uri", "sqlite:///")),
    "no host": Case(nothing, "track --set tracking_uri=http://", ("tracking_uri", "http://")),
    "half an address": Case(nothing, "track --set tracking_uri=http://[::1", ("tracking_uri",)),
    "no driver": Case(
        nothing,
        "track --set tracking_uri=mysql+pymysql://me:secret@127.0.0.1:1/x",
        ("mysql+pymysql://***@127", "pymysql", "install"),
    ),
    "a file name": Case(nothing, "train CELL --set tracking_uri=mlflow.db", ("tracking_uri",)),
    "in memory": Case(nothing, "ui --set tracking_uri=sqlite:///:memory:", ("sqlite:///results",)),
    "none": Case(nothing, "track", ("tracking is none", "set tracking_uri")),
    "none to open": Case(nothing, "ui", ("none", "set tracking_uri")),
    "not a database": Case(
        put("mlflow.db", "not a database, but a text that is long enough for its header" * 20),
        "track --set tracking_uri=sqlite:///mlflow.db",
        ("mlflow.db", "move it away"),
    ),
    "a folder": Case(
        lambda folder: (folder / "mlflow.db").mkdir(),
        "ui --set tracking_uri=sqlite:///mlflow.db",
        ("mlflow.db", "move it away"),
    ),
    "nothing to track": Case(
        drop("results/small"),
        "track --set tracking_uri=sqlite:///mlflow.db",
        ("results/small", "train something"),
    ),
}

ARGUMENTS = {
    "no verb": Case(nothing, "", ("VERB", "--help")),
    "unknown verb": Case(nothing, "fly", ("fly", "--help")),
    "unknown option": Case(nothing, "status --fast", ("--fast", "--help")),
    "no epsilon": Case(nothing, "attack CELL", ("--epsilon", "tnfdt attack --help")),
    "epsilon elsewhere": Case(nothing, "attack CELL --epsilon 0.5", ("0.5", "0.1")),
    "epsilon a word": Case(nothing, "attack CELL --epsilon much", ("much", "0.1")),
    "epsilon nan": Case(nothing, "attack CELL --epsilon nan", ("nan", "0.1")),
    "cell elsewhere": Case(nothing, "train ../../etc/passwd", ("../../etc/passwd", "seed0")),
    "dataset elsewhere": Case(nothing, "data c10", ("c10", "digits, own")),
    "old plan": Case(nothing, "train CELL --slice abc", ("changed", "start Snakemake again")),
    "part of tables": Case(nothing, "tables --only maps", ("maps", "figures")),
    "gpus 0": Case(nothing, "plan --gpus 0", ("--gpus", "0", "1 or more")),
    "gpus many": Case(nothing, "plan --gpus many", ("--gpus", "many")),
    "gpu unknown": Case(nothing, "plan --gpu nosuchgpu", ("nosuchgpu", "a100")),
    "port": Case(nothing, "ui --port 99999999", ("--port", "99999999", "65535")),
    "study too long": Case(
        nothing, f"status --study {'a' * 5000}.yaml", ("aaa", "demo, fmnist, mini")
    ),
    "figure a folder": Case(nothing, "plan --power --figure ..", ("--figure", ".png")),
    "figure of no power": Case(nothing, "plan --figure a.png", ("--figure", "--power")),
    "gpus of power": Case(nothing, "plan --power --gpus 2", ("--gpus", "--power")),
    "check as JSON": Case(nothing, "status --check --json", ("--check", "--json")),
    "merge nothing": Case(nothing, "merge --out all.zip", ("FILE", "tnfdt merge --help")),
    "merge missing": Case(nothing, "merge a.zip --out all.zip", ("a.zip", "evidence.zip")),
    "merge a folder": Case(nothing, "merge results --out all.zip", ("results", "directory")),
    "merge another zip": Case(nothing, "merge own.npz --out all.zip", ("own.npz", "bundle.json")),
    "merge onto a file": Case(nothing, "merge a.zip --out own.npz", ("own.npz", "exists")),
    "tables to nowhere": Case(nothing, "tables --evidence a.zip", ("--evidence", "--out")),
    "tables of nothing": Case(nothing, "tables --evidence a.zip --out b", ("a.zip", "not exist")),
    "tables of no readings": Case(nothing, "tables --only multiverse", ("small", "`multiverse`")),
    "pack a lab": Case(nothing, "pack --lab a|b", ("--lab", "a|b")),
    "pack nothing": Case(drop(TRAIN.rsplit("/", 2)[0]), "pack", ("results/small", "run the study")),
    "pack no weights": Case(drop(WEIGHTS), "pack --weights", ("model.safetensors", "--weights")),
    "doctor a toaster": Case(nothing, "doctor --device toaster", ("--device", "toaster")),
    "verify both": Case(
        nothing, "verify results/small --evidence a.zip --cell CELL", ("folder", "--evidence")
    ),
    "verify a bundle": Case(nothing, "verify --evidence own.npz --cell CELL", ("own.npz",)),
    "verify seed of many digits": Case(
        nothing, f"verify results/small --cell digits/wrn10_1/tn/seed{'9' * 500}", ("seed999",)
    ),
    "verify nowhere": Case(nothing, "verify nowhere --cell CELL", ("nowhere", "results/demo")),
    "verify a path": Case(nothing, "verify results/small --cell tn", ("'tn'", "seed0")),
    "verify unknown": Case(
        nothing,
        "verify results/small --cell digits/wrn10_1/tn/seed9",
        ("seed9", "cells.json", "has"),
    ),
}


def in_record(keys, value, *words, command="tables"):
    return Case(record(RECORD, keys, value), command, ("record.json", *words))


def in_attack(keys, value, *words):
    return Case(record(f"{EPSILON}.json", keys, value), "tables", ("eps0.1.json", *words))


RECORDS = {
    "torn": Case(cut(RECORD), "tables", ("record.json", "delete it")),
    "a list": Case(put(RECORD, "[]"), "tables", ("record.json", "delete it")),
    "NaN": Case(put(RECORD, '{"a": NaN}'), "tables", ("record.json", "NaN")),
    "a folder": Case(folder_named(RECORD), "attack CELL --epsilon 0.1", ("record.json",)),
    "huge number": in_record("metrics.accuracy", 10**400, "accuracy"),
    "percentage": in_record("metrics.accuracy", 92.5, "accuracy", "0..1"),
    "other study": in_record("study", "other", "'other'", "delete it"),
    "other seed": in_record("seed", 7, "seed is 7", "delete it"),
    "config a list": in_record("config", [1], "config", "delete it"),
    "no config": in_record("config", ..., "config", command="train CELL"),
    "no fingerprint": in_record("dataset_fingerprint", ..., "fingerprint", command="train CELL"),
    "memory a text": in_record("metrics.peak_memory_bytes", "much", "peak_memory_bytes"),
    "speed negative": in_record("metrics.images_per_second", -5.0, "images_per_second"),
    "network unknown": in_record(
        "config.model", "resnet35", "resnet35", command="attack CELL --epsilon 0.1"
    ),
    "classes a text": in_record(
        "config.num_classes", "ten", "train again", command="attack CELL --epsilon 0.1"
    ),
    "history empty": Case(put(f"{TRAIN}/history.csv", ""), "tables", ("history.csv", "train")),
    "history of words": Case(
        put(f"{TRAIN}/history.csv", "epoch,test_accuracy\n1,good\n"), "tables", ("history.csv",)
    ),
    "history without accuracy": Case(
        put(f"{TRAIN}/history.csv", "epoch,loss\n1,2\n"), "tables", ("history.csv", "accuracy")
    ),
    "history binary": Case(
        put(f"{TRAIN}/history.csv", b"\xff\x00\xfe"), "tables", ("history.csv", "train")
    ),
    "history to verify": Case(
        put(f"{TRAIN}/history.csv", "epoch,loss\n1,good\n"),
        "verify results/small --cell CELL",
        ("history.csv", "train"),
    ),
    "attack torn": Case(cut(f"{EPSILON}.json"), "tables", ("eps0.1.json", "delete it")),
    "attack elsewhere": in_attack("epsilon", 0.2, "0.2", "delete it"),
    "curve a number": in_attack("metrics.curve", 0.5, "curve", "attack again"),
    "curve of words": in_attack("metrics.curve", ["a", "b", "c"], "curve", "attack again"),
    "curve short": in_attack("metrics.curve", [0.5], "curve", "3 steps"),
    "attack to verify": Case(
        record(f"{EPSILON}.json", "epsilon", "much"),
        "verify results/small --cell CELL",
        ("eps0.1.json", "epsilon"),
    ),
    "config to verify": in_record(
        "config", {"model": "wrn10_1"}, "config", command="verify results/small --cell CELL"
    ),
    "audit torn": Case(cut(AUDIT), "tables", ("audit.json", "delete it")),
    "audit of nothing": Case(record(AUDIT, "epsilons", {"0.1": {}}), "tables", ("audit.json",)),
    "audit of words": Case(
        lambda f: put(
            AUDIT, (f / AUDIT).read_text().replace('"worst_case": ', '"worst_case": "low", "was": ')
        )(f),
        "tables",
        ("audit.json", "audit again"),
    ),
    "ledger torn": Case(
        lambda f: (drop(RECORD)(f), put(LEDGER, "{")(f)),
        "verify results/small --cell CELL",
        ("cells.json", "delete it"),
    ),
    "ledger of another kind": Case(
        lambda f: (
            drop(RECORD)(f),
            put(LEDGER, '{"schema":1,"cells":[]}')(f),
        ),
        "verify results/small --cell CELL",
        ("cells.json",),
    ),
}

FILES = {
    "attack array cut": Case(cut(f"{EPSILON}.npz"), "tables", ("eps0.1.npz", "run again")),
    "attack array flipped": Case(flip(f"{EPSILON}.npz", 80), "tables", ("eps0.1.npz", "run again")),
    "attack array not zip": Case(put(f"{EPSILON}.npz", "no"), "tables", ("eps0.1.npz", "again")),
    "attack array of floats": Case(
        arrays(f"{EPSILON}.npz", correct=np.ones((3, 10))), "tables", ("eps0.1.npz", "float64")
    ),
    "clean of words": Case(arrays(CLEAN, correct=np.array(["yes"] * 20)), "tables", ("clean.npz",)),
    "clean of others": Case(
        arrays(CLEAN, correct=np.ones(19, bool)),
        "attack CELL --epsilon 0.1",
        ("clean.npz", "20 test images", "train the cell again"),
    ),
    "clean gone": Case(drop(CLEAN), "attack CELL --epsilon 0.1", ("clean.npz", "does not exist")),
    "attack without images": Case(
        arrays(f"{EPSILON}.npz", indices=None), "tables", ("eps0.1.npz", "indices")
    ),
    "attack elsewhere": Case(
        arrays(f"{EPSILON}.npz", indices=np.arange(10) + 90), "tables", ("eps0.1.npz", "images")
    ),
    "weights cut": Case(
        cut(WEIGHTS), "attack CELL --epsilon 0.1", ("model.safetensors", "train the cell again")
    ),
    "weights flipped": Case(
        flip(WEIGHTS), "attack CELL --epsilon 0.1", ("model.safetensors", "train again")
    ),
    "weights of another": Case(
        put(WEIGHTS, b"\x02\0\0\0\0\0\0\0{}"), "audit CELL", ("model.safetensors", "train the cell")
    ),
    "weights gone": Case(drop(WEIGHTS), "audit CELL", ("model.safetensors", "train the cell")),
}

PREPARED = {
    "not prepared": Case(drop(DATA), "train --force CELL", ("manifest.json", "run the stage")),
    "manifest torn": Case(
        cut(f"{DATA}/manifest.json"), "train --force CELL", ("manifest.json", "delete")
    ),
    "manifest of nothing": Case(
        put(f"{DATA}/manifest.json", "{}"), "train CELL", ("manifest.json", "delete")
    ),
    "arrays a list": Case(
        record(f"{DATA}/manifest.json", "arrays", []), "train CELL", ("manifest.json", "delete")
    ),
    "classes a text": Case(
        record(f"{DATA}/manifest.json", "num_classes", "ten"), "train CELL", ("manifest.json",)
    ),
    "classes too few": Case(
        record(f"{DATA}/manifest.json", "num_classes", 3), "train CELL", ("manifest.json", "class")
    ),
    "fingerprint a number": Case(
        record(f"{DATA}/manifest.json", "fingerprint", 5), "audit CELL", ("manifest.json",)
    ),
    "images cut": Case(cut(f"{DATA}/train_x.npy"), "train CELL", ("train_x.npy", "prepare")),
    "images of another": Case(
        put(f"{DATA}/train_x.npy", "no array"), "train CELL", ("train_x.npy", "prepare")
    ),
    "pixel flipped": Case(
        flip(f"{DATA}/train_x.npy"), "train --force CELL", ("train_x.npy", "changed", "prepare")
    ),
    "label flipped": Case(
        flip(f"{DATA}/test_y.npy", -8), "attack CELL --epsilon 0.1", ("test_y.npy", "prepare")
    ),
    "manifest for a plan": Case(
        record(f"{DATA}/manifest.json", "num_classes", "ten"), "plan --gpu a100", ("manifest.json",)
    ),
    "manifest to verify": Case(
        put(f"{DATA}/manifest.json", "[]"), "verify results/small --cell CELL", ("manifest.json",)
    ),
    "images deleted": Case(drop(f"{DATA}/test_x.npy"), "train CELL", ("test_x.npy", "prepare")),
}


def in_own(*words, **changes):
    return Case(arrays("own.npz", **changes), "data own", ("own.npz", *words))


NPZ = {
    "missing": Case(drop("own.npz"), "data own", ("own.npz", "does not exist", ".npz")),
    "a folder": Case(folder_named("own.npz"), "data own", ("own.npz", "no file")),
    "empty": Case(put("own.npz", ""), "data own", ("own.npz", "numpy.savez")),
    "text": Case(put("own.npz", "train_x"), "data own", ("own.npz", "numpy.savez")),
    "cut": Case(cut("own.npz"), "data own", ("own.npz", "numpy.savez")),
    "flipped": Case(flip("own.npz", 400), "data own", ("own.npz", "numpy.savez")),
    "no labels": in_own("train_y", "missing", train_y=None),
    "objects": in_own("numpy.savez", train_y=np.array([{}] * 20)),
    "floats": in_own("train_x", "uint8", train_x=np.zeros((20, 16, 16, 3))),
    "flat": in_own("train_x", "[N, H, W", train_x=np.zeros((20, 16), np.uint8)),
    "channels first": in_own("transpose", train_x=np.zeros((20, 3, 16, 16), np.uint8)),
    "no images": in_own("train_x", "empty", train_x=np.zeros((0, 16, 16, 3), np.uint8)),
    "two sizes": in_own("same size", test_x=np.zeros((4, 8, 8, 3), np.uint8)),
    "label too few": in_own("one label an image", train_y=LABELS[:5]),
    "label negative": Case(arrays("own.npz", train_y=LABELS - 1), "data own", ("own", "from 0")),
    "label a gap": Case(arrays("own.npz", train_y=LABELS * 5), "data own", ("own", "class 1")),
    "label a fraction": in_own("train_y", "integer", train_y=LABELS / 2),
    "label beyond 2**63": in_own("train_y", str(2**63 + 1), train_y=LABELS.astype("u8") + 2**63),
    "label pairs": in_own("train_y", "[20, 1]", train_y=LABELS[:, None]),
    "two channels": in_own("train_x", "[N, H, W", train_x=np.zeros((20, 16, 16, 2), np.uint8)),
    "videos": in_own("train_x", "[N, H, W", train_x=np.zeros((20, 2, 9, 9, 3), np.uint8)),
    "for a plan": Case(put("own.npz", "train_x"), "plan --gpu a100", ("own.npz",)),
}


def in_text(path, old, new, *words, command="tables"):
    """The first `old` of a text file is `new`."""

    def damage(folder):
        text = (folder / path).read_text()
        assert old in text
        (folder / path).write_text(text.replace(old, new, 1))

    return Case(damage, command, (Path(path).name, *words))


CONFIG, CLAIMS = "config/config.yaml", "config/claims.yaml"
PUBLISHED, FIRST = "config/published.csv", "resnet34,vanilla,clean,,92.52,0.25"
CONFIGURED = {
    "config torn": Case(put(CONFIG, "threads: ["), "status", ("config.yaml", "not valid YAML")),
    "config gone": Case(drop(CONFIG), "status", ("config.yaml", "does not exist")),
    "config threads": in_text(CONFIG, "threads: 1", "threads: 0", "threads", command="plan"),
    "config unknown": in_text(CONFIG, "threads:", "thread:", "thread", "allowed", command="status"),
    "claims torn": Case(put(CLAIMS, "families: {"), "tables", ("claims.yaml", "not valid YAML")),
    "claims empty": Case(put(CLAIMS, "families: {}"), "tables", ("claims.yaml", "families")),
    "claims gone": Case(drop(CLAIMS), "tables", ("claims.yaml", "does not exist")),
    "claim without a test": in_text(
        CLAIMS, "        contrasts:", "        contrast:", "tn-clean", "contrast", "allowed"
    ),
    "claim direction": in_text(CLAIMS, "direction: greater", "direction: up", "direction", "'up'"),
    "claim on itself": in_text(CLAIMS, "b: vanilla", "b: tn", "contrasts.0", "two methods"),
    "claim epsilon": in_text(CLAIMS, "epsilon: 0.1", "epsilon: .nan", "epsilon", "nan"),
    "claim margin": in_text(CLAIMS, "metric: clean, a", "metric: clean, margin: 1, a", "margin"),
    "numbers gone": Case(drop(PUBLISHED), "tables", ("published.csv", "does not exist")),
    "numbers empty": Case(put(PUBLISHED, ""), "tables", ("published.csv", "not a CSV")),
    "numbers binary": Case(put(PUBLISHED, b"\xff\xfe"), "tables", ("published.csv", "not a CSV")),
    "numbers ragged": in_text(PUBLISHED, FIRST, f"{FIRST},1,2,3", "line 2"),
    "numbers renamed": in_text(PUBLISHED, "value", "number", "columns must be", "value"),
    "numbers of words": in_text(PUBLISHED, "92.52", "high", "line 2", "value", "number"),
    "numbers too high": in_text(PUBLISHED, "92.52", "192.52", "line 2", "0 to 100"),
    "numbers scattered": in_text(PUBLISHED, ",0.25", ",inf", "line 2", "sd"),
    "numbers twice": in_text(
        PUBLISHED, FIRST, f"{FIRST}\ntable1,c10,{FIRST}", "line 3", "duplicated"
    ),
    "numbers at an epsilon": in_text(PUBLISHED, "clean,,92", "clean,0.1,92", "line 2", "epsilon"),
    "numbers beyond": in_text(PUBLISHED, "robust,0.1,", "robust,10,", "line 3", "epsilon"),
}

CASES = {
    f"{part}: {name}": case
    for part, cases in {
        "study": STUDIES,
        "setting": SETTINGS,
        "tracking": TRACKING,
        "argument": ARGUMENTS,
        "record": RECORDS,
        "file": FILES,
        "prepared": PREPARED,
        "npz": NPZ,
        "config": CONFIGURED,
    }.items()
    for name, case in cases.items()
}


def assert_refused(folder, argv, words, capsys):
    before = listing(folder)
    code, told = run(argv, capsys)
    assert_one_line(code, told, words)
    assert listing(folder) == before


def assert_one_line(code, told, words):
    assert code not in (0, None)
    assert told.startswith("tnfdt: "), told
    assert told.endswith("\n")
    assert len(told.splitlines()) == 1, told
    assert len(told) < 1000
    assert "Traceback" not in told
    for word in words:
        assert word in told


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_one_line_names_it_and_nothing_is_changed(folder, capsys, case):
    case.damage(folder)
    assert_refused(folder, case.argv, case.words, capsys)


@pytest.mark.parametrize("name", ["aliases that explode", "10,000 unknown keys"])
def test_a_large_study_is_refused_at_once(folder, capsys, name):
    STUDIES[name].damage(folder)
    begin = time.process_time()
    run(["status"], capsys)
    assert time.process_time() - begin < 3


def unpacked(official):
    official.unpack_cifar()
    flip("cifar-10-batches-py/data_batch_1")(official.folder)


def without_one(official):
    official.members.popitem()
    official.write_tar()


OFFICIAL = {
    "c10 cut": ("c10", lambda m: cut(ARCHIVES["c10"])(m.folder), ["cifar-10-python.tar.gz"]),
    "c10 another": ("c10", lambda m: put(ARCHIVES["c10"], "no")(m.folder), ["tar.gz", "MD5"]),
    "c10 unpacked": ("c10", unpacked, ["data_batch_1", "MD5", "replace or delete"]),
    "c10 incomplete": ("c10", without_one, ["batches.meta", "replace the archive"]),
    "c100 flipped": ("c100", lambda m: flip(ARCHIVES["c100"])(m.folder), ["cifar-100", "MD5"]),
    "svhn cut": ("svhn", lambda m: cut(ARCHIVES["svhn"])(m.folder), ["train_32x32.mat", "MD5"]),
    "svhn flipped": ("svhn", lambda m: flip("test_32x32.mat")(m.folder), ["test_32x32", "MD5"]),
    "fmnist cut": ("fmnist", lambda m: cut(ARCHIVES["fmnist"])(m.folder), ["train-images", "cut"]),
    "fmnist text": ("fmnist", lambda m: put(ARCHIVES["fmnist"], "no")(m.folder), ["train-images"]),
    "fmnist other": (
        "fmnist",
        lambda m: put(ARCHIVES["fmnist"], gzip.compress(b"0"))(m.folder),
        ["train-images", "SHA256", "replace or delete"],
    ),
    "svhn gone": ("svhn", lambda m: drop("test_32x32.mat")(m.folder), ["test_32x32.mat", "MD5"]),
    "c10 gone": ("c10", lambda m: drop(ARCHIVES["c10"])(m.folder), ["download failed", "MD5"]),
    "data_dir gone": ("svhn", lambda m: shutil.rmtree(m.folder), ["official", "put it there"]),
}


@pytest.mark.parametrize(("name", "damage", "words"), OFFICIAL.values(), ids=OFFICIAL.keys())
def test_official_files_that_are_not(folder, monkeypatch, capsys, name, damage, words):
    monkeypatch.setattr(torchvision.datasets.utils, "download_url", no_network)
    (folder / "official").mkdir()
    official = Miniature(name, folder / "official", monkeypatch)
    study(lambda raw: use(raw, name))(folder)
    damage(official)
    assert_refused(folder, ["data", name, "--set", "data_dir=official"], words, capsys)


def use(raw, dataset):
    raw["datasets"][dataset] = {}
    raw["grid"]["table1"]["datasets"].append(dataset)


def no_network(*_):
    raise OSError("no network")


def test_an_address_in_the_environment_is_checked_too(folder, monkeypatch, capsys):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "ftp://user:secret@host")
    words = ["MLFLOW_TRACKING_URI", "ftp://***@host", "sqlite:///"]
    assert_refused(folder, ["track"], words, capsys)


def test_a_port_in_use_is_told_before_a_server_starts(folder, capsys, monkeypatch):
    monkeypatch.setattr(sqlite_store, "init_store", lambda uri: None)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        argv = ["ui", "--port", port, "--set", "tracking_uri=sqlite:///mlflow.db"]
        assert_refused(folder, argv, [port, "in use", "another port"], capsys)


# ---- what is left half-done is no reason to stop: it is told in one line and made again


def saved_state(folder, monkeypatch):
    """A training that was stopped after its first step; returns its checkpoint."""

    @contextlib.contextmanager
    def at_once():
        yield [15]

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "stop_requests", at_once)
        assert main(["train", "--force", CELL]) == checkpoint.EXIT_INTERRUPTED
    return folder / TRAIN / "checkpoint.pt"


def other_state(change):
    def damage(path):
        saved = torch.load(path, weights_only=True)
        change(saved["state"])
        torch.save(saved, path)

    return damage


USELESS = {
    "cut": lambda path: cut(path.name)(path.parent),
    "text": lambda path: path.write_text("no checkpoint"),
    "empty": lambda path: path.write_bytes(b""),
    "a number": lambda path: torch.save(5, path),
    "of another": lambda path: torch.save({"identity": "other", "state": {}}, path),
    "no trainer": other_state(lambda state: state.pop("trainer")),
    "no weights": other_state(lambda state: state["trainer"].pop("model")),
    "other weights": other_state(lambda state: state["trainer"]["model"].popitem()),
    "NaN": other_state(lambda state: state["trainer"]["model"]["normalize.mean"].fill_(torch.nan)),
    "no optimizer": other_state(lambda state: state["trainer"].update(optimizer={})),
    "an epoch too far": other_state(lambda state: state["trainer"].update(epoch=7)),
    "a step too far": other_state(lambda state: state["trainer"].update(step=-1)),
    "no clock": other_state(lambda state: state.update(seconds=(float("nan"), 1.0))),
}


@pytest.mark.parametrize("damage", USELESS.values(), ids=USELESS.keys())
def test_a_useless_checkpoint_is_told_and_training_starts_over(folder, monkeypatch, capsys, damage):
    before = (folder / WEIGHTS).read_bytes()
    path = saved_state(folder, monkeypatch)
    (folder / WEIGHTS).unlink()
    damage(path)
    code, told = run(["train", CELL], capsys)
    assert code == 0
    lines = [line for line in told.splitlines() if "checkpoint" in line]
    assert len(lines) == 1
    assert "checkpoint.pt" in lines[0]
    assert "starts over" in lines[0]
    assert "going on" not in told
    assert "Traceback" not in told
    assert (folder / WEIGHTS).read_bytes() == before
    assert not path.exists()


def test_a_good_checkpoint_goes_on(folder, monkeypatch, capsys):
    saved_state(folder, monkeypatch)
    (folder / WEIGHTS).unlink()
    code, told = run(["train", CELL], capsys)
    assert code == 0
    assert "going on at epoch 1, step 2" in told


def partial_file(**changes):
    """A partial file of the right attack with these arrays."""

    def damage(path, key):
        whole = dict.fromkeys(attack_cell.ARRAYS, np.ones((3, 4)))
        whole |= {"key": np.array(key), "seconds": np.array(1.0)} | changes
        with path.open("wb") as file:
            np.savez(file, **{name: array for name, array in whole.items() if array is not None})

    return damage


PARTIALS = {
    "text": lambda path, key: path.write_text("no partial"),
    "empty": lambda path, key: path.write_bytes(b""),
    "of another": partial_file(key=np.array("other")),
    "no clock": partial_file(seconds=np.array(np.nan)),
    "a scalar": partial_file(correct=np.array(True)),
    "two lengths": partial_file(loss=np.zeros((3, 5))),
    "too many images": partial_file(**dict.fromkeys(attack_cell.ARRAYS, np.ones((3, 99)))),
    "not all it needs": partial_file(loss=None),
}


@pytest.mark.parametrize("damage", PARTIALS.values(), ids=PARTIALS.keys())
def test_a_useless_partial_file_is_told_and_the_attack_starts_over(
    folder, monkeypatch, capsys, damage
):
    before, keys = (folder / f"{EPSILON}.npz").read_bytes(), []
    with monkeypatch.context() as patch:
        patch.setattr(partial.Partial, "load", lambda self, *_: keys.append(self.key))
        run(["attack", CELL, "--epsilon", "0.1"], capsys)
    damage(folder / f"{EPSILON}.partial", keys[0])
    code, told = run(["attack", CELL, "--epsilon", "0.1"], capsys)
    assert code == 0
    lines = [line for line in told.splitlines() if "eps0.1.partial" in line]
    assert len(lines) == 1
    assert "starts over" in lines[0]
    assert "Traceback" not in told
    assert (folder / f"{EPSILON}.npz").read_bytes() == before
    assert not (folder / f"{EPSILON}.partial").exists()


# ---- as real commands

COMMANDS = {
    "no verb": (nothing, ["tnfdt"], ["VERB", "--help"]),
    "unknown study": (
        nothing,
        ["tnfdt", "status", "--study", "nope"],
        ["nope", "demo, fmnist, mini"],
    ),
    "weights": (
        cut(WEIGHTS),
        ["tnfdt", "attack", CELL, "--epsilon", "0.1"],
        ["model.safetensors", "train the cell again"],
    ),
    "own images": (put("own.npz", "text"), ["tnfdt", "data", "own"], ["own.npz", "numpy.savez"]),
}


@pytest.mark.parametrize(("damage", "command", "words"), COMMANDS.values(), ids=COMMANDS.keys())
def test_the_real_command_says_the_same(folder, damage, command, words):
    damage(folder)
    before = listing(folder)
    done = subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True)
    assert_one_line(done.returncode, done.stderr, words)
    assert listing(folder) == before


SNAKEMAKE = {
    "threads": ({"threads": "0"}, ["threads", "minimum"]),
    "results_dir": ({"results_dir": "own.npz"}, ["results_dir", "own.npz", "folder"]),
    "tracking_uri": ({"tracking_uri": "ftp://x"}, ["tracking_uri", "ftp://x", "sqlite:///"]),
}


@pytest.mark.parametrize(("settings", "words"), SNAKEMAKE.values(), ids=SNAKEMAKE.keys())
def test_snakemake_says_the_same_before_anything_runs(folder, monkeypatch, settings, words):
    for key in ("TNFDT_STUDY", "TNFDT_SET"):
        monkeypatch.delenv(key)
    project = Project(folder)
    project.write(STUDY)
    before = listing(folder)
    done = project.run(*project.snakemake_command(**settings), check=False)
    told = [line for line in done.stderr.splitlines() if line.startswith("tnfdt: ")]
    assert_one_line(done.returncode, "".join(f"{line}\n" for line in told), words)
    assert "Traceback" not in done.stderr
    after = {path: item for path, item in listing(folder).items() if path[:10] != ".snakemake"}
    assert after == before


def test_at_least_250_bad_inputs_are_tried():
    tables = (CASES, OFFICIAL, USELESS, PARTIALS, COMMANDS, SNAKEMAKE)
    assert sum(map(len, tables)) >= 250


def test_the_study_is_fine_before_it_is_damaged(folder, capsys):
    assert run(["tables"], capsys)[0] == 0
    assert run(["train", CELL], capsys)[0] == 0
    assert run(["data", "own"], capsys)[0] == 0
