"""What tracking costs a training, at one epoch per second.

It can cost in two ways: the training waits in a call of the tracker, or the child process that
sends slows it down. The first is measured with a clock around the calls. For the second the
child is stopped and let run in turns, a tenth of a second each, and the slices compared: whole
trainings, one after the other, differ by more than a hundredth for reasons of the machine.
"""

from __future__ import annotations

import os
import random
import signal
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

from benchmarks.ratios import Row
from tnfdt.study.paths import Cell
from tnfdt.tracking import CellTracker, init_store

TRAININGS, EPOCHS, PAIRS = 4, 20, 5  # pairs of slices per epoch


def main() -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        uri = f"sqlite:///{folder}/mlflow.db"
        init_store(uri)
        return [_training(uri, Path(folder)), _ready(uri)]


def _training(uri: str, folder: Path) -> Row:
    """A small network on one thread: many short calls of torch, each of which would wait for
    a thread that holds the interpreter. Every child imports mlflow anew."""
    work, order = _slice_of_work(), random.Random(0)
    runs = [Measured(uri, folder, seed, work, order) for seed in range(TRAININGS)]
    running, stopped = sum(run.running for run in runs), sum(run.stopped for run in runs)
    held = sum(run.held for run in runs) / (running + stopped)
    return Row.at_most("training with tracking / without", running / stopped + held, 1.01)


class Measured:
    """One training: seconds at work while the child runs and while it is stopped, and seconds
    in calls of the tracker."""

    def __init__(
        self, uri: str, folder: Path, seed: int, work: Callable[[], None], order: random.Random
    ) -> None:
        self.running = self.stopped = self.held = 0.0
        cell = Cell("digits", "wrn10_1", "tn", seed)
        out = folder / "bench" / "train" / cell.path
        tracker = CellTracker(uri, "bench", cell, out, params={}, tags={})
        self.hold(tracker.start)
        assert tracker.child is not None
        for epoch in range(1, EPOCHS + 1):
            for _ in range(PAIRS):
                self.pair(tracker.child.process.pid, work, order)
            self.hold(partial(tracker.log_epoch, {"epoch": epoch, "loss": 1.0}))
        self.hold(tracker.close)

    def pair(self, child: int, work: Callable[[], None], order: random.Random) -> None:
        for runs in order.sample([True, False], 2):
            os.kill(child, signal.SIGCONT if runs else signal.SIGSTOP)
            seconds = _seconds(work)
            self.running += seconds * runs
            self.stopped += seconds * (not runs)
        os.kill(child, signal.SIGCONT)

    def hold(self, call: Callable[[], None]) -> None:
        self.held += _seconds(call)


def _slice_of_work() -> Callable[[], None]:
    """A tenth of a second of training."""
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

    steps(50)
    begin = time.thread_time()
    steps(200)
    count = round(20 / (time.thread_time() - begin))
    return lambda: steps(count)


def _ready(uri: str) -> Row:
    """Seconds that every job spends on making sure that the store is there."""
    seconds = min(_seconds(partial(init_store, uri)) for _ in range(10))
    return Row("seconds to see that the store is ready", seconds, "< 0.1", seconds < 0.1)


def _seconds(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin
