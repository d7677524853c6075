"""Looking at the results more than once: how much of the 5 % each look may spend.

Seeds added because of what the first ones showed are peeking. A study that declares its looks
(`seeds: {looks: [3, 5, 8]}`) spends its error by O'Brien and Fleming's rule, after Lan and DeMets:
almost nothing early, almost all at the end, 5 % over all looks together.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
from scipy import optimize, stats  # type: ignore[import-untyped]

from tnfdt.evidence.statistics import ALPHA, FloatArray
from tnfdt.study.looks import Looks
from tnfdt.verdicts.judge import Verdict

_GRID = 2001  # points of a density: the errors stay below 1e-6


def spent(fraction: float) -> float:
    """The error that may be spent when `fraction` of the seeds are there, both sides."""
    return float(4 * stats.norm.sf(stats.norm.isf(ALPHA / 4) / np.sqrt(fraction)))


@cache
def nominal_alphas(looks: tuple[int, ...]) -> tuple[float, ...]:
    """The level at which each look tests, given the seeds at each, so that all spend ALPHA.

    looks: seeds at each look, ascending. The statistic over the looks is taken as a Brownian
    motion observed at seeds / last seeds; level k is what makes the chance of a first crossing
    there equal to what is spent between looks k - 1 and k.
    """
    times = [seeds / looks[-1] for seeds in looks]
    levels, before, alive, width = [], 0.0, np.zeros(0), 0.0
    for number, time in enumerate(times):
        share = spent(time) - (spent(times[number - 1]) if number else 0.0)
        edge = _edge(share, time, before, alive, width)
        alive, width = _survivors(edge, time, before, alive, width), edge
        levels.append(float(2 * stats.norm.sf(edge / np.sqrt(time))))
        before = time
    return tuple(levels)


def _edge(share: float, time: float, before: float, alive: FloatArray, width: float) -> float:
    """Where the motion must be at `time`, up or down, for a first crossing of chance `share`."""
    if not before:
        return float(np.sqrt(time) * stats.norm.isf(share / 2))

    def excess(edge: float) -> float:
        return _crossing(edge, time - before, alive, width) - share

    return float(optimize.brentq(excess, 0.0, 10.0))


def _crossing(edge: float, step: float, alive: FloatArray, width: float) -> float:
    """The chance to be beyond ±edge after one more step, from the density `alive` on ±width."""
    at = np.linspace(-width, width, _GRID)
    beyond = stats.norm.sf(edge - at, scale=np.sqrt(step)) + stats.norm.cdf(
        -edge - at, scale=np.sqrt(step)
    )
    return float(np.trapezoid(alive * beyond, at))


def _survivors(
    edge: float, time: float, before: float, alive: FloatArray, width: float
) -> FloatArray:
    """The density at `time` of motions that have not crossed so far, on a grid of ±edge."""
    at = np.linspace(-edge, edge, _GRID)
    if not before:
        return np.asarray(stats.norm.pdf(at, scale=np.sqrt(time)))
    old = np.linspace(-width, width, _GRID)
    steps = stats.norm.pdf(at[:, None] - old[None, :], scale=np.sqrt(time - before))
    return np.asarray(np.trapezoid(steps * alive, old, axis=1))


def level(looks: Looks) -> float:
    """The level at which a study tests: 5 %, or that of the declared look it is at."""
    return nominal_alphas(looks.planned)[looks.look - 1] if looks.planned else ALPHA


def look_name(looks: Sequence[int], seeds: int) -> str:
    """Such as "look 1 of 3", for tables; empty where the study declares no looks."""
    done = sum(seeds >= needed for needed in looks)
    return f"look {done} of {len(looks)}" if looks else ""


DECIDED = ("reproduced", "contradicted", "holds here", "fails here")


def undecided_rows(verdicts: Sequence[Verdict]) -> set[str]:
    """Rows of the tables, dataset/model/method, whose seeds could still change a verdict."""
    return {
        f"{dataset}/{row.model}/{method}"
        for verdict in verdicts
        if verdict.verdict not in DECIDED
        for row in verdict.evidence
        if row.unit == "points" and row.planned
        for dataset, method in row.sides
    }
