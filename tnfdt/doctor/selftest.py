"""A minute on a device: every method agrees with the CPU and repeats itself to the byte."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tnfdt import devices
from tnfdt.study.machine import Machine
from tnfdt.study.study import Limit, Slice, Study, load_study

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from tnfdt.data.prepared import ImageSet

STEPS, EPOCHS, _BATCH = 20, 2, 50
_TOLERANCE = {
    "fp32": 0.03,
    "tf32": 0.05,
    "bf16": 0.1,
}  # of a loss; another layout moves it by 0.006
_CALIBRATION_SECONDS = 20.0


class Tried(NamedTuple):
    """A short training: its loss in each epoch, its weights, and its seconds."""

    losses: list[float]
    weights: dict[str, Tensor]
    seconds: float


def run(study: Study, machine: Machine, device: str) -> Iterator[tuple[str, bool, str]]:
    """Per method a name, whether it works, and a line; then the speed, which `plan` reads."""
    machine = replace(machine, device=device)
    devices.set_arithmetic(machine.precision, machine.threads)
    demo = load_study("demo")
    with (
        tempfile.TemporaryDirectory() as folder,
        devices.acquire(device, machine.gpu_slots) as found,
    ):
        for method, config in _configs(demo, machine).items():
            yield method, *_try_method(config, Path(folder), found)
    yield "speed", True, _speed(study, machine)


def _configs(demo: Study, machine: Machine) -> dict[str, Slice]:
    """The demo's training of each method, of twenty steps."""
    recipe = replace(demo.training, batch_size=_BATCH, epochs=EPOCHS)
    short = replace(demo, training=recipe)
    return {cell.method: short.train_slice(cell, machine) for cell in short.cells}


def _try_method(config: Slice, folder: Path, device: torch.device) -> tuple[bool, str]:
    """Twice on the device and once on the CPU."""
    import torch

    first, second = (_train(config, folder, device) for _ in range(2))
    cpu = _train(config, folder, torch.device("cpu"))
    gap = max(abs(a / b - 1) for a, b in zip(first.losses, cpu.losses, strict=True))
    same = all(torch.equal(first.weights[key], second.weights[key]) for key in first.weights)
    agrees = gap <= _TOLERANCE[config["precision"]]
    texts = (
        f"losses {'agree' if agrees else 'DO NOT agree'} with the CPU's to {gap:.1e}",
        f"twice {'the same bytes' if same else 'OTHER bytes'}",
        f"{STEPS * _BATCH / second.seconds:,.0f} images/s",
    )
    advice = "" if agrees and same else f"; do not trust results of {device}, report it"
    return agrees and same, ", ".join(texts) + advice


def _train(config: Slice, folder: Path, device: torch.device) -> Tried:
    from tnfdt.train.recipe import Trainer

    trainer = Trainer(config, _digits(folder, device), device)
    begin = time.perf_counter()
    trainer.run(lambda: None, lambda row: None)  # an epoch ends with numbers on the host
    seconds = time.perf_counter() - begin
    weights = {key: value.cpu() for key, value in trainer.model.state_dict().items()}
    return Tried([row["loss"] for row in trainer.history], weights, seconds)


def _digits(folder: Path, device: torch.device) -> ImageSet:
    from tnfdt.data import prepared
    from tnfdt.data.prepare import prepare

    limit = Limit(train=STEPS // EPOCHS * _BATCH, test=100)
    prepare("digits", folder / "digits", data_dir=folder, limit=limit)
    return prepared.load(folder / "digits", device)


def _speed(study: Study, machine: Machine) -> str:
    from tnfdt.plan import rates

    speed = rates.measure(study, machine, budget=_CALIBRATION_SECONDS)
    model = study.cells[0].model
    images = max(1 / found.learn for kind, found in speed.seconds.items() if kind[1] == model)
    return f"{model} trains {images:,.1f} images/s; stored for `tnfdt plan --study {study.name}`"
