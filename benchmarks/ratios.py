"""What the benchmarks share: a ratio of two times measured side by side, and a row to print."""

from __future__ import annotations

import importlib
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Row", "interleaved", "measured"]


@dataclass(frozen=True)
class Row:
    """One measured ratio against its target."""

    name: str
    ratio: float
    target: str  # as a reader would say it: "≥ 40", "≤ 1.05"
    ok: bool

    @classmethod
    def at_least(cls, name: str, ratio: float, bound: float) -> Row:
        return cls(name, ratio, f"≥ {bound:g}", ratio >= bound)

    @classmethod
    def at_most(cls, name: str, ratio: float, bound: float) -> Row:
        return cls(name, ratio, f"≤ {bound:g}", ratio <= bound)


def interleaved(
    baseline: Callable[[], object],
    candidate: Callable[[], object],
    repeats: int,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Seconds of the candidate over seconds of the baseline, the median of `repeats` pairs.

    Below 1 the candidate is faster; 1 / ratio is its speed-up. A pair runs one right after the
    other, so that a load on the machine falls on both; every other pair starts with the
    candidate, so that neither gains by its place. Both run once before the clock starts.
    Where a few per cent count and one thread computes, `clock=time.process_time` leaves out
    the time that other processes take.
    """
    baseline(), candidate()
    ratios = []
    for turn in range(repeats):
        pair = [candidate, baseline] if turn % 2 else [baseline, candidate]
        seconds = {function: _seconds(function, clock) for function in pair}
        ratios.append(seconds[candidate] / seconds[baseline])
    return statistics.median(ratios)


def _seconds(function: Callable[[], object], clock: Callable[[], float]) -> float:
    start = clock()
    function()
    return clock() - start


def measured(name: str) -> list[Row]:
    """The rows of one benchmark. Here, because a new process does not import a `__main__`."""
    rows: list[Row] = importlib.import_module(f"benchmarks.bench_{name}").main()
    return rows
