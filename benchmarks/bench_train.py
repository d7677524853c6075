"""The harness around a training: against the bare loop, and from process start to first step."""

from __future__ import annotations

import itertools
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import torch
from torch import nn

from benchmarks.ratios import Row, interleaved
from tnfdt.data.prepared import ImageSet, load
from tnfdt.study.machine import load_machine
from tnfdt.study.study import Slice, load_study
from tnfdt.train.feed import Batch, batches
from tnfdt.train.recipe import Trainer

DEMO = "digits/wrn10_1/vanilla/seed0"


def main() -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        tnfdt = [sys.executable, "-m", "tnfdt"]
        settings = ["--study", "demo", "--set", f"results_dir={folder}"]
        subprocess.run([*tnfdt, "data", *settings, "digits"], check=True, capture_output=True)
        return [
            _epoch(load(Path(folder, "demo/data/digits"))),
            _first_step(tnfdt, settings, folder),
            *_controls(),
        ]


def _epoch(data: ImageSet) -> Row:
    """Steps of SGD in turns: `Trainer` with its feed and its books, and the same step laid bare.

    On one network, so that both find the same weights in the same place.
    """
    study, machine = load_study("demo"), load_machine()
    config = study.train_slice(study.cells[0], machine)
    torch.set_num_threads(1)
    trainer = Trainer(config, data, torch.device("cpu"))
    model, optimizer = trainer.model.train(), trainer.optimizer
    ready = itertools.cycle(list(batches(trainer.source, 0, 0, trainer.device)))
    feed = _endless(trainer)

    def loop() -> None:
        batch = next(ready)
        optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.cross_entropy(model(batch.images), batch.classes)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    ratio = interleaved(
        loop, lambda: trainer._learn(next(feed)), repeats=300, clock=time.process_time
    )
    return Row.at_most("epoch in the harness / bare loop (digits, wrn10_1)", ratio, 1.02)


def _endless(trainer: Trainer) -> Iterator[Batch]:
    """The batches of the first epoch, again and again."""
    while True:
        trainer.step = 0
        yield from batches(trainer.source, 0, 0, trainer.device)


# Beside vanilla in theory: the same step, but for PGD's three, each a forward pass and a backward
# pass to the pixels alone, two thirds of a step of SGD; with gradients of the weights it were 4.
_THEORY = {"fdt": 1.0, "smooth": 1.0, "mixup": 1.0, "cutmix": 1.0, "fdt2": 1.0, "pgd_at": 3.0}


def _controls() -> Iterator[Row]:
    """Three steps of each control over three of vanilla, on images of CIFAR's size."""
    study, machine = load_study("mini_controls"), load_machine()
    torch.set_num_threads(1)
    data, plain = _noise(300), study.train_slice(study.cells[0], machine)
    vanilla = _steps({**plain, **study.methods["vanilla"].train_slice()}, data)
    for name, theory in _THEORY.items():
        control = _steps({**plain, **study.methods[name].train_slice()}, data)
        ratio = interleaved(vanilla, control, repeats=7, clock=time.process_time)
        bound = 4.0 if name == "pgd_at" else 1.15
        yield Row(
            f"step of {name} / vanilla (theory {theory:g})", ratio, f"≤ {bound:.3g}", ratio <= bound
        )


def _steps(config: Slice, data: ImageSet) -> Callable[[], None]:
    trainer = Trainer(config, data, torch.device("cpu"))
    trainer.model.train()

    def epoch() -> None:
        trainer.step = 0
        for batch in batches(trainer.source, 0, 0, trainer.device):
            trainer._learn(batch)

    return epoch


def _noise(count: int) -> ImageSet:
    pixels = torch.randint(256, (count, 3, 32, 32), dtype=torch.uint8)
    labels = torch.arange(count) % 10
    return ImageSet(
        train_x=pixels,
        train_y=labels,
        test_x=pixels[:10],
        test_y=labels[:10],
        num_classes=10,
        fingerprint="noise",
    )


def _first_step(tnfdt: list[str], settings: list[str], folder: str) -> Row:
    """Processor seconds from the start of a process to its first checkpoint, median of five."""
    often = ["--set", "checkpoint_minutes=0.00001", "--force"]
    checkpoint = Path(folder, "demo/train", DEMO, "checkpoint.pt")
    seconds = [_until([*tnfdt, "train", *settings, *often, DEMO], checkpoint) for _ in range(5)]
    return Row.at_most("processor seconds from job start to first step", sorted(seconds)[2], 3)


def _until(command: list[str], checkpoint: Path) -> float:
    process = psutil.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    while not checkpoint.exists() and process.poll() is None:
        time.sleep(0.005)
    used = process.cpu_times()
    process.kill()
    process.wait()
    checkpoint.unlink()
    return float(used.user + used.system)
