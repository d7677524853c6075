"""Which reading is the paper's? How far all rows of each lie from the published tables.

Only rows in the paper's regime count: elsewhere another network or fewer images move a number
further than any reading does. The distance is in standard errors of the comparison with a
published number (published.py), so that a row counts as much as it can be known.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tnfdt.evidence.contrasts import Blocks
from tnfdt.evidence.results import Results
from tnfdt.evidence.statistics import TTest, equivalence
from tnfdt.study.methods import VANILLA
from tnfdt.study.study import Study
from tnfdt.verdicts.hypotheses import ClaimRow
from tnfdt.verdicts.multiverse import OWN
from tnfdt.verdicts.published import MARGIN, PaperNumber, Published, against_published
from tnfdt.verdicts.regime import PAPER, regime


@dataclass(frozen=True, kw_only=True)
class Apart:
    """A number of ours beside the published one, in percent; `test` is of their difference.

    Of `place` only the table's row and column count: its method is a, and b is empty.
    """

    place: ClaimRow
    ours: float
    published: float
    test: TTest

    @property
    def errors(self) -> float:
        """The difference in standard errors; nan where they are not known."""
        return self.test.estimate / self.test.se if self.test.se > 0 else math.nan

    @property
    def outcome(self) -> str:
        """agrees, differs or cannot tell; "" without two seeds."""
        return equivalence(self.test, MARGIN)


@dataclass(frozen=True, kw_only=True)
class Distance:
    """A reading beside the published tables; `planned` is how many numbers it could have."""

    title: str
    rows: tuple[Apart, ...]
    planned: int

    @property
    def errors(self) -> float:
        """Root mean square over the rows, in standard errors; nan if none is known."""
        known = [row.errors for row in self.rows if math.isfinite(row.errors)]
        return math.sqrt(float(np.mean(np.square(known)))) if known else math.nan

    @property
    def points(self) -> float:
        """Mean absolute difference, which does not shrink where seeds scatter."""
        return float(np.mean([abs(row.test.estimate) for row in self.rows]))

    @property
    def furthest(self) -> Apart:
        """In standard errors, or in points where they are not known."""
        return max(self.rows, key=lambda r: (np.nan_to_num(abs(r.errors)), abs(r.test.estimate)))

    @property
    def baselines(self) -> list[Apart]:
        """The plain networks without attack."""
        rows = self.rows
        return [row for row in rows if row.place.a == VANILLA and row.place.measure == "clean"]


@dataclass(frozen=True, kw_only=True)
class Distances:
    """All readings, the nearest first; `why` says why there is none."""

    readings: tuple[Distance, ...] = ()
    why: str = ""


def distances(results: Results, published: Published, paper: Study) -> Distances:
    """How far each reading with results lies from the published tables."""
    inside: list[tuple[ClaimRow, PaperNumber]] = []
    differences: list[str] = []
    for row, number in _rows(results, published):
        place, texts = regime(row, results.study, paper)
        differences += texts
        if place == PAPER and number:
            inside.append((row, number))
    if not inside:
        return Distances(why=_why(differences))
    views = {OWN: results} | {r.title: results.under(r) for r in results.study.multiverse.readings}
    found = [_distance(title, view, inside) for title, view in views.items()]
    known = [one for one in found if one.rows]
    if not known:
        return Distances(why="no row of the paper's regime has results yet.")
    return Distances(readings=tuple(sorted(known, key=_order)))


def _order(one: Distance) -> tuple[bool, bool, float]:
    """A reading of which rows are missing is compared with less, and is listed below the others."""
    unknown = math.isnan(one.errors)
    return len(one.rows) < one.planned, unknown, one.points if unknown else one.errors


def _why(differences: Sequence[str]) -> str:
    if not differences:
        return "the study has no row that the paper gives a number for."
    return (
        "no row is in the paper's regime, and beside what else differs a distance would say "
        f"nothing of the reading: {'; '.join(dict.fromkeys(differences))}."
    )


def _rows(results: Results, published: Published) -> Iterator[tuple[ClaimRow, PaperNumber | None]]:
    """Every number of the study's tables that the paper has, or has for another network."""
    for table, cells in results.grid.items():
        for dataset, model, method in dict.fromkeys(cell[:3] for cell in cells):
            for epsilon in (None, *results.epsilons):
                measure = "clean" if epsilon is None else "robust"
                number = published.get((table, dataset, model, method, measure, epsilon))
                yield ClaimRow(
                    table=table, dataset=dataset, model=model, measure=measure, epsilon=epsilon,
                    a=method, b="", hypothesis="", unit="points", side=1, threshold=0.0,
                ), number  # fmt: skip


def _distance(title: str, view: Results, rows: Sequence[tuple[ClaimRow, PaperNumber]]) -> Distance:
    blocks = Blocks(view)
    found = (_apart(row, paper, blocks) for row, paper in rows)
    return Distance(title=title, rows=tuple(one for one in found if one), planned=len(rows))


def _apart(row: ClaimRow, paper: PaperNumber, blocks: Blocks) -> Apart | None:
    block = blocks.get(row.dataset, row.model, row.measure, row.epsilon)
    if row.a not in block.scores:
        return None
    values = block.accuracies(row.a)
    test = against_published(values, paper, block.pooled())
    return Apart(place=row, ours=float(np.mean(values)), published=paper.value, test=test)
