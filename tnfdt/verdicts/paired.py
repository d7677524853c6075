"""How far another reading of the paper moves a difference, and the plain network, on the same
seeds and images.

Readings share both, so what moves is a paired quantity: a seed that is lucky under one reading
mostly is under another, and that luck cancels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tnfdt.evidence.contrasts import POINTS, Block, Blocks
from tnfdt.evidence.statistics import FloatArray, TTest, difference, paired_change
from tnfdt.study.methods import VANILLA
from tnfdt.verdicts.headline import mean_test
from tnfdt.verdicts.hypotheses import ClaimRow

Side = tuple[str, str]  # dataset, method


@dataclass(frozen=True)
class Paired:
    """Two readings of one study, by their blocks."""

    own: Blocks
    other: Blocks

    def difference(self, rows: Sequence[ClaimRow]) -> TTest:
        """Of the mean of a contrast over its rows, in points: the other reading's minus ours."""
        return self._mean(rows, self._difference)

    def baseline(self, rows: Sequence[ClaimRow]) -> TTest:
        """The same of the plain network's accuracy, under the measure of the contrast."""
        places = {(row.dataset, row.model): row for row in rows}
        return self._mean(list(places.values()), self._baseline)

    def _mean(self, rows: Sequence[ClaimRow], test: Callable[[ClaimRow], TTest | None]) -> TTest:
        tests = ((row.dataset, test(row)) for row in rows)
        return mean_test([(name, found.scaled(POINTS)) for name, found in tests if found])

    def _difference(self, row: ClaimRow) -> TTest | None:
        a, b = row.sides
        if not row.against:
            return self._change(row, a, b)
        tests = (self._change(row, a), self._change(row, b))
        return difference(tests[0], tests[1]) if tests[0] and tests[1] else None

    def _baseline(self, row: ClaimRow) -> TTest | None:
        return self._change(row, (row.dataset, VANILLA))

    def _change(self, row: ClaimRow, first: Side, *minus: Side) -> TTest | None:
        """Of a method, or of its difference to another on the same images; None without seeds
        that all of them have."""
        sides = [
            (blocks.get(dataset, row.model, row.measure, row.epsilon), method)
            for blocks in (self.other, self.own)
            for dataset, method in (first, *minus)
        ]
        matrices = list(_common(sides))
        if not matrices:
            return None
        half = len(matrices) // 2
        after, before = (np.subtract.reduce(m) for m in (matrices[:half], matrices[half:]))
        return paired_change(after, before)


def _common(sides: Sequence[tuple[Block, str]]) -> Iterator[FloatArray]:
    """Scores [S, N] of each side on the seeds that all have; nothing if there are none."""
    found = [block.scores.get(method, {}) for block, method in sides]
    seeds = sorted(set.intersection(*({*scores} for scores in found)))
    for scores in found if seeds else ():
        yield np.stack([scores[seed] for seed in seeds])
