"""Restartable batches: work on many images that can be killed at any instant and goes on.

Batches are the same whether or not the work was interrupted, so the end has the same bytes.
"""

from __future__ import annotations

import contextlib
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
from torch import Tensor

from tnfdt.devices import memory_errors
from tnfdt.files.atomic import Arrays, read_arrays, write_npz
from tnfdt.files.progress import Progress
from tnfdt.study.schema import UserError

SAVE_SECONDS = 10.0  # between two writes of the partial file
_NO_MEMORY = "attack: out of GPU memory; set a smaller attack.batch_size"

Attack = Callable[[Tensor, Tensor, int], Arrays]  # images, labels, first image -> [..., N] each


class Partial:
    """The batches done so far, in a file that knows what it is a part of."""

    def __init__(self, path: Path, key: str, names: Sequence[str] = ()) -> None:
        self.path, self.key, self.names = path, key, {*names}  # of the arrays, where given
        self.arrays: Arrays = {}
        self.seconds = 0.0

    @property
    def done(self) -> int:
        """How many images are through."""
        return min((array.shape[-1] for array in self.arrays.values()), default=0)

    def add(self, batch: Arrays) -> None:
        old = self.arrays
        self.arrays = {
            name: np.concatenate([old[name], array], -1) if old else array
            for name, array in batch.items()
        }

    def save(self) -> None:
        meta = {"key": np.array(self.key), "seconds": np.array(self.seconds)}
        write_npz(self.path, {**self.arrays, **meta}, compress=False)

    def load(self, count: int) -> None:
        """Go on from the file; one that is torn or of another attack is reported and left."""
        if not self.path.exists():
            return
        try:
            arrays = read_arrays(self.path)
            key, seconds = str(arrays.pop("key")), float(arrays.pop("seconds"))
            self._check(arrays, count, seconds)
        except (UserError, KeyError, TypeError, ValueError, IndexError):
            reason = "cannot be read"
        else:
            if key == self.key:
                self.arrays, self.seconds = arrays, seconds
                return
            reason = "belongs to another attack"
        print(f"{self.path} {reason}; the attack starts over", file=sys.stderr, flush=True)

    def _check(self, arrays: Arrays, count: int, seconds: float) -> None:
        """Every array has the same images, not more than there are, and the clock is a clock."""
        lengths = {array.shape[-1] for array in arrays.values()}
        whole = len(lengths) == 1 and max(lengths) <= count and 0 <= seconds < math.inf
        if not whole or (self.names and arrays.keys() != self.names):
            raise ValueError("not batches of this attack")


def in_batches(
    attack: Attack,
    batch: Callable[[slice], tuple[Tensor, Tensor]],
    count: int,
    batch_size: int,
    partial: Partial,
    title: str | None,
) -> None:
    """Fill `partial` with `attack` on all `count` images, from where its file ends."""
    partial.load(count)
    saved = time.monotonic()
    bar = Progress(title, count, partial.done) if title else None
    with _saved_when_stopped(partial):
        for first in range(partial.done, count, batch_size):
            part, begin = slice(first, min(first + batch_size, count)), time.monotonic()
            images, labels = batch(part)
            with memory_errors(_NO_MEMORY):
                partial.add(_finite(attack(images, labels, first)))
            partial.seconds += time.monotonic() - begin
            if time.monotonic() - saved >= SAVE_SECONDS:
                partial.save()
                saved = time.monotonic()
            if bar:
                bar.reach(partial.done)
    if bar:
        bar.close()


@contextlib.contextmanager
def _saved_when_stopped(partial: Partial) -> Iterator[None]:
    """Keep every whole batch of an attack that SIGTERM, Ctrl-C or its time limit ends."""
    done = partial.done
    try:
        yield
    except (SystemExit, KeyboardInterrupt):
        if partial.done > done:
            partial.save()
        raise


def _finite(arrays: Arrays) -> Arrays:
    for name in ("loss", "gradient_norm"):
        if name in arrays and not np.isfinite(arrays[name]).all():
            raise UserError(
                f"attack: the network's {name.replace('_', ' ')} is not finite; did its training "
                "diverge? look at its history.csv and train again with another recipe"
            )
    return arrays
