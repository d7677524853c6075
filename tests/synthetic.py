"""Whole study folders of made-up records, in the layout of the real stages, from one seed.

Every image has a difficulty shared by all cells of its dataset, every training an offset of
its own: so differences have both an image and a seed part, as real ones do.
"""

from __future__ import annotations

import csv
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tnfdt.files.atomic import read_json, sha256_file, write_json
from tnfdt.files.records import SCHEMA, identity
from tnfdt.study.machine import Machine, load_machine
from tnfdt.study.paths import Cell, format_epsilon
from tnfdt.study.schema import ROOT
from tnfdt.study.study import Study, study_from_dict

FloatArray = NDArray[np.float64]

METHODS: dict[str, dict[str, Any]] = {
    "vanilla": {},
    "ov": {"blend": "harmonic", "target": "dominant"},
    "fdt": {"blend": "harmonic", "target": "distribution"},
    "tn": {"tensor_norm": True},
    "tn_fdt": {"tensor_norm": True, "blend": "harmonic", "target": "distribution"},
}
HISTORY = (
    "epoch", "lr", "loss", "soft_cross_entropy", "train_accuracy", "test_accuracy",
    "images_per_second", "seconds", "time",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class World:
    """What is true of the made-up study: accuracies by method, and the noise of a seed."""

    images: int = 200  # attacked, the first half of the test set
    seed_sd: float = 0.004
    clean: dict[str, float] | None = None
    robust: dict[str, float] | None = None

    def accuracy(self, cell: Cell) -> float:
        table = {"vanilla": 0.90, "ov": 0.88, "fdt": 0.90, "tn": 0.92, "tn_fdt": 0.93}
        return (self.clean or table).get(cell.method, 0.9)

    def strength(self, cell: Cell) -> float:
        """The share of the clean accuracy that the attack at 0.1 takes in its last step."""
        table = {"vanilla": 0.97, "ov": 0.93, "fdt": 0.85, "tn": 0.96, "tn_fdt": 0.8}
        return (self.robust or table).get(cell.method, 0.9)


def machine() -> Machine:
    return load_machine(ROOT / "config/config.yaml")


def study(name: str = "synthetic", **changes: Any) -> Study:
    """Two datasets, five methods, three seeds, Table 2 with one larger network."""
    raw = {
        "description": "Made-up records.",
        "grid": {
            "table1": {"datasets": ["c10", "c100"], "models": ["resnet34"], "methods": [*METHODS]},
            "table2": {
                "datasets": ["c100"],
                "models": ["resnet152", "wrn28_10"],
                "methods": ["vanilla", "tn_fdt"],
            },
        },
        "seeds": [0, 1, 2],
        "methods": METHODS,
        "datasets": {"c10": {"augment": {"shift": 4, "flip": True}}, "c100": {}},
    } | changes
    return study_from_dict(raw, name=name, where=name)


def write(
    study: Study,
    results_dir: Path,
    world: World | None = None,
    *,
    skip: tuple[Cell, ...] = (),
    attacks: bool = True,
) -> Path:
    """Write the records of all cells but those in `skip`; returns the study's folder."""
    world, folder = world or World(), results_dir / study.name
    for cell in [*study.cells, *study.variants]:
        if cell not in skip:
            write_training(study, study.trained_as(cell), folder, world)
            if attacks:
                write_attacks(study, cell, folder, world)
    return folder


def write_training(study: Study, cell: Cell, folder: Path, world: World) -> None:
    out, clean = folder / "train" / cell.path, _latent(cell, world) < _level(cell, world)
    out.mkdir(parents=True, exist_ok=True)
    answers = np.zeros(len(clean), np.int16)
    np.savez_compressed(out / "clean.npz", correct=clean, predictions=answers)
    write_json(out / "record.json", training_record(study, cell, folder, float(clean.mean())))
    with (out / "history.csv").open("w", newline="") as file:
        rows = csv.DictWriter(file, HISTORY)
        rows.writeheader()
        rows.writerows(_history(study, cell, float(clean.mean())))


def training_record(study: Study, cell: Cell, folder: Path, accuracy: float) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "stage": "train",
        **identity(study.name, cell),
        "metrics": {
            "accuracy": accuracy,
            "accuracy_best": accuracy,
            "accuracy_median10": accuracy,
            "loss": 0.1,
            "parameters": 21_282_122,
            "images_per_second": 1000.0 + _random(cell, "speed").normal(0, 5),
            "peak_memory_bytes": 2 * 2**30,
            "energy_joules": None,
            "duration_seconds": 100.0 + _random(cell, "time").normal(0, 0.5),
        },
        "config": {**study.train_slice(cell, machine()), "num_classes": 10},
        "interpretation": study.interpretation,
        **_provenance(cell, folder),
    }


def write_attacks(study: Study, cell: Cell, folder: Path, world: World) -> None:
    out = folder / "attack" / cell.path
    out.mkdir(parents=True, exist_ok=True)
    network = study.trained_as(cell)
    latent, level = _latent(network, world), _level(network, world)
    latent = latent[: world.images]
    for epsilon in study.attack.epsilons:
        falls = 1 - np.exp(-np.arange(1, study.attack.steps + 1) / 6)
        share = world.strength(cell) * min((epsilon / 0.1) ** 0.5, 1.0)
        correct = latent < level * (1 - share * falls[:, None])
        name = f"eps{format_epsilon(epsilon)}"
        images = np.arange(world.images)
        np.savez_compressed(out / f"{name}.npz", correct=correct, indices=images)
        record = attack_record(study, cell, folder, epsilon, latent < level, correct)
        write_json(out / f"{name}.json", record)


def attack_record(
    study: Study, cell: Cell, folder: Path, epsilon: float, clean: Any, correct: Any
) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "stage": "attack",
        **identity(study.name, cell),
        "epsilon": epsilon,
        "images": int(correct.shape[1]),
        "metrics": {
            "clean_accuracy": float(clean.mean()),
            "robust_accuracy": float(correct.mean()),
            "last_accuracy": float(correct[-1].mean()),
            "worst_accuracy": float(correct.all(0).mean()),
            "curve": [float(value) for value in correct.mean(1)],
            "loss": [1.0] * len(correct),
            "gradient_norm": [1.0] * len(correct),
            "duration_seconds": 1.0,
        },
        "config": study.attack_slice(epsilon, cell.method),
        "interpretation": study.interpretation,
        **_provenance(study.trained_as(cell), folder),
    }


def _provenance(cell: Cell, folder: Path) -> dict[str, Any]:
    manifest = folder / "data" / cell.dataset / "manifest.json"
    weights = folder / "train" / cell.path / "model.safetensors"
    made_up = hashlib.sha256(cell.path.encode()).hexdigest()
    return {
        "commit": "0" * 40,
        "versions": {"python": "3.11"},
        "hardware": {"cpu": "made up"},
        "dataset_fingerprint": (
            read_json(manifest)["fingerprint"] if manifest.exists() else cell.dataset
        ),
        "model_sha256": sha256_file(weights) if weights.exists() else made_up,
        "started": 0.0,
    }


def _random(cell: Cell, stream: str) -> np.random.Generator:
    digest = hashlib.sha256(f"{cell.path}/{stream}".encode()).digest()
    return np.random.default_rng(int.from_bytes(digest[:8], "big"))


def _latent(cell: Cell, world: World) -> FloatArray:
    """How hard each test image is for this training, [2 N] in 0..1."""
    shared = _random(Cell(cell.dataset, "", "", 0), "images").random(2 * world.images)
    own = _random(cell, "own").random(2 * world.images)
    return 0.8 * shared + 0.2 * own


def _level(cell: Cell, world: World) -> float:
    return world.accuracy(cell) + _random(cell, "seed").normal(0, world.seed_sd)


def _history(study: Study, cell: Cell, accuracy: float) -> list[dict[str, float]]:
    epochs, noise = study.training.epochs, _random(cell, "history")
    rows = []
    for epoch in range(1, epochs + 1):
        reached = accuracy * (1 - np.exp(-4 * epoch / epochs)) / (1 - np.exp(-4))
        wobble = noise.normal(0, 0.02) * (1 - epoch / epochs)
        values = (epoch, 0.1, 2 - 1.8 * reached, 2 - 1.7 * reached, reached, reached + wobble)
        rows.append(dict(zip(HISTORY, (*values, 1000.0, float(epoch), float(epoch)), strict=True)))
    return rows


def write_audits(study: Study, folder: Path) -> None:
    """An audit of every audited cell: stronger attacks take more, TN's more than others'."""
    for cell in study.audited():
        path = folder / "audit" / cell.path / "audit.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, audit_record(study, cell, folder))


def audit_record(study: Study, cell: Cell, folder: Path) -> dict[str, Any]:
    masked = study.methods[cell.method].tensor_norm
    paper = 0.30 if masked else 0.15
    levels = {"paper": paper, "exact": 0.14, "restarts": 0.13, "steps_x2": 0.12, "noise": 0.8}
    if cell.method != "vanilla":
        levels["transfer"] = 0.5
    epsilons = {
        format_epsilon(epsilon): {
            "attacks": {
                name: {
                    "robust_accuracy": level + 0.1,
                    "last_accuracy": level + 0.01,
                    "worst_accuracy": level,
                }
                for name, level in levels.items()
            },
            "worst_case": 0.11,
            "indicators": {},
        }
        for epsilon in study.attack.epsilons
    }
    return {
        "schema": SCHEMA,
        "stage": "audit",
        **identity(study.name, cell),
        "badge": "gradient misleads, stronger attack" if masked else "sound",
        "images": 50,
        "epsilons": epsilons,
        "metrics": {"clean_accuracy": 0.95, "duration_seconds": 1.0},
        "config": study.audit_slice(),
        **_provenance(cell, folder),
    }
