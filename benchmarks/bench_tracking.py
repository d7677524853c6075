"""What tracking costs a training, at one epoch per second.

It can cost in two ways: the training waits while it appends to its journal, or the process that
follows the run slows it down. The first is measured with a clock around the calls. For the second
the follower is stopped and let run in turns, a tenth of a second each, and the slices compared:
whole trainings, one after the other, differ by more than a hundredth for reasons of the machine.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import torch

from benchmarks.ratios import Row
from tnfdt.files.journal import Journal
from tnfdt.study.paths import Cell

TRAININGS, EPOCHS, PAIRS = 4, 20, 5  # pairs of slices per epoch


def main() -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        return [_training(Path(folder))]


def _training(folder: Path) -> Row:
    """Small networks on one thread, one after the other, all followed by one process."""
    work, order = _slice_of_work(), random.Random(0)
    with _followed(folder) as follower:
        runs = [Measured(follower, folder, seed, work, order) for seed in range(TRAININGS)]
    running, stopped = sum(run.running for run in runs), sum(run.stopped for run in runs)
    held = sum(run.held for run in runs) / (running + stopped)
    return Row.at_most("training with tracking / without", running / stopped + held, 1.01)


@contextmanager
def _followed(folder: Path) -> Iterator[int]:
    """The number of a process that follows the study `bench`, once it has opened its store."""
    store = f"sqlite:///{folder}/mlflow.db"
    call = f"follow_run(Path({str(folder)!r}), 'bench', {store!r}, [])"
    code = f"from pathlib import Path; from tnfdt.tracking import follow_run; {call}"
    with subprocess.Popen([sys.executable, "-c", code]) as process:
        while not (folder / "mlflow.db").exists():
            time.sleep(0.1)
        yield process.pid
        process.kill()


class Measured:
    """One training: seconds at work while the follower runs and while it is stopped, and seconds
    in calls of the journal."""

    def __init__(
        self,
        follower: int,
        folder: Path,
        seed: int,
        work: Callable[[], None],
        order: random.Random,
    ) -> None:
        self.running = self.stopped = self.held = 0.0
        out = folder / "bench" / "train" / Cell("digits", "wrn10_1", "tn", seed).path
        with Journal(out, {}) as journal:
            for epoch in range(1, EPOCHS + 1):
                for _ in range(PAIRS):
                    self.pair(follower, work, order)
                self.hold(partial(journal.log_epoch, {"epoch": epoch, "loss": 1.0}))

    def pair(self, follower: int, work: Callable[[], None], order: random.Random) -> None:
        for runs in order.sample([True, False], 2):
            os.kill(follower, signal.SIGCONT if runs else signal.SIGSTOP)
            seconds = _seconds(work)
            self.running += seconds * runs
            self.stopped += seconds * (not runs)
        os.kill(follower, signal.SIGCONT)

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


def _seconds(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin
