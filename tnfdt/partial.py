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
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tnfdt.config import UserError
from tnfdt.progress import Progress
from tnfdt.records import atomic_path

SAVE_SECONDS = 10.0  # between two writes of the partial file

Array = npt.NDArray[Any]
Arrays = dict[str, Array]
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
            arrays = read_npz(self.path)
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
    """Fill `partial` with `attack` on all `count` images, from where its file stands."""
    partial.load(count)
    saved = time.monotonic()
    bar = Progress(title, count, partial.done) if title else None
    for first in range(partial.done, count, batch_size):
        part, begin = slice(first, min(first + batch_size, count)), time.monotonic()
        images, labels = batch(part)
        with _memory_errors():
            partial.add(_finite(attack(images, labels, first)))
        partial.seconds += time.monotonic() - begin
        if time.monotonic() - saved >= SAVE_SECONDS:
            partial.save()
            saved = time.monotonic()
        if bar:
            bar.reach(partial.done)
    if bar:
        bar.close()


def _finite(arrays: Arrays) -> Arrays:
    for name in ("loss", "gradient_norm"):
        if name in arrays and not np.isfinite(arrays[name]).all():
            raise UserError(
                f"attack: the network's {name.replace('_', ' ')} is not finite; did its training "
                "diverge? look at its history.csv and train again with another recipe"
            )
    return arrays


@contextlib.contextmanager
def _memory_errors() -> Iterator[None]:
    try:
        yield
    except torch.OutOfMemoryError:
        raise UserError("attack: out of GPU memory; set a smaller attack.batch_size") from None


def write_npz(path: Path, arrays: Arrays, *, compress: bool = True) -> None:
    """Arrays by name, atomically; the same arrays give the same bytes."""
    save = np.savez_compressed if compress else np.savez
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        save(file, **arrays)  # type: ignore[arg-type]


def read_npz(path: Path) -> Arrays:
    """All arrays of a file that `write_npz` wrote; never unpickles."""
    try:
        with np.load(path, allow_pickle=False) as file:
            return dict(file)
    except FileNotFoundError:
        raise UserError(f"{path} does not exist; run the stage that makes it") from None
    except Exception as error:  # whatever a damaged file makes numpy, zipfile and zlib raise
        raise UserError(f"{path} cannot be read ({error}); delete it and run again") from None
