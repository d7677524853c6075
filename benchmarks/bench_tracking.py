"""What tracking costs a training: with it against without it, at one epoch per second."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from benchmarks.ratios import Row, interleaved
from tnfdt.config import Cell
from tnfdt.tracking import CellTracker, init_store

EPOCHS, PAIRS = 20, 5
CELL = Cell("digits", "wrn10_1", "tn", 0)


def main() -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        uri = f"sqlite:///{folder}/mlflow.db"
        init_store(uri)
        return [_training(uri, Path(folder)), _ready(uri)]


def _training(uri: str, folder: Path) -> Row:
    """A small network on one thread: many short calls of torch, each of which would wait for
    a thread that holds the interpreter. The child imports mlflow anew in every run."""
    epoch = _epoch_of_a_second()
    ratio = interleaved(
        lambda: _train(None, folder, epoch), lambda: _train(uri, folder, epoch), repeats=PAIRS
    )
    return Row.at_most("training with tracking / without, one epoch per second", ratio, 1.01)


def _train(uri: str | None, folder: Path, epoch: Callable[[], None]) -> None:
    out = folder / "bench" / "train" / CELL.path
    shutil.rmtree(out, ignore_errors=True)
    with CellTracker(uri, "bench", CELL, out, params={}, tags={}) as tracker:
        tracker.start()
        for number in range(1, EPOCHS + 1):
            epoch()
            tracker.log_epoch({"epoch": number, "loss": 1 / number, "time": time.time()})


def _epoch_of_a_second() -> Callable[[], None]:
    torch.set_num_threads(1)
    layers = [torch.nn.Sequential(torch.nn.Conv2d(8, 8, 3), torch.nn.ReLU()) for _ in range(6)]
    model = torch.nn.Sequential(*layers, torch.nn.Flatten(), torch.nn.LazyLinear(10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    images, classes = torch.rand(16, 8, 16, 16), torch.randint(0, 10, (16,))

    def steps(count: int) -> None:
        for _ in range(count):
            loss = torch.nn.functional.cross_entropy(model(images), classes)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()

    steps(20)
    begin = time.thread_time()
    steps(100)
    count = round(100 / (time.thread_time() - begin))
    return lambda: steps(count)


def _ready(uri: str) -> Row:
    """Seconds that every job spends on making sure that the store is there."""
    begin = time.perf_counter()
    for _ in range(10):
        init_store(uri)
    seconds = (time.perf_counter() - begin) / 10
    return Row("seconds to see that the store is ready", seconds, "< 0.1", seconds < 0.1)
