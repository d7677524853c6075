"""Does a verdict depend on how the paper is read? Each claim under every reading of a study.

The study's own reading stays the primary one: its verdicts are made without any other. No reading
is chosen for its result, so the largest of many differences gets no mark of significance.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tnfdt.evidence.contrasts import Blocks
from tnfdt.evidence.results import Results
from tnfdt.evidence.statistics import TTest
from tnfdt.study.multiverse import Reading
from tnfdt.verdicts.headline import Headline, contrast_label
from tnfdt.verdicts.hypotheses import ClaimRow
from tnfdt.verdicts.judge import Verdict
from tnfdt.verdicts.paired import Paired

OWN = "the study's own"

Judge = Callable[[Results], Sequence[Verdict]]


@dataclass(frozen=True, kw_only=True)
class ReadingOutcome:
    """One headline of a claim under one reading; `reading` is None for the study's own.

    Of another reading: `change` is its difference minus the study's own, `baseline` how far the
    plain network moves; both in points, paired by seed and image.
    """

    claim: str
    reading: Reading | None
    headline: Headline
    verdict: str
    holds: bool  # the estimate is on the claimed side
    side: int  # 1 where more than the threshold is claimed, -1 where less
    threshold: float  # in points
    change: TTest | None = None
    baseline: TTest | None = None

    @property
    def title(self) -> str:
        return self.reading.title if self.reading else OWN


def outcomes(results: Results, own: Sequence[Verdict], judge: Judge) -> list[ReadingOutcome]:
    """Every claim with a headline, under the study's own reading and then under the others.

    own: the study's verdicts, judge: makes those under another reading.
    """
    found = list(_outcomes(own, None, None))
    blocks = Blocks(results)
    for reading in results.study.multiverse.readings:
        other = results.under(reading)
        found += _outcomes(judge(other), reading, Paired(blocks, Blocks(other)))
    return found


def _outcomes(
    verdicts: Sequence[Verdict], reading: Reading | None, paired: Paired | None
) -> Iterator[ReadingOutcome]:
    for verdict in verdicts:
        for one in verdict.headlines:
            rows = _rows(verdict, one)
            side, threshold = rows[0].side, rows[0].threshold
            yield ReadingOutcome(
                claim=verdict.claim.id,
                reading=reading,
                headline=one,
                verdict=verdict.verdict,
                holds=side * (one.estimate - threshold) > 0,
                side=side,
                threshold=threshold,
                change=paired.difference(rows) if paired else None,
                baseline=paired.baseline(rows) if paired else None,
            )


def _rows(verdict: Verdict, one: Headline) -> list[ClaimRow]:
    """The rows with results that a headline is the mean of."""
    rows = (row for row in verdict.evidence if row.role == "claim" and row.status != "missing")
    return [row for row in rows if contrast_label(row) == one.label]


def by_contrast(found: Sequence[ReadingOutcome]) -> dict[tuple[str, str], list[ReadingOutcome]]:
    """The outcomes of each contrast that the study's own reading has, that one first."""
    groups: dict[tuple[str, str], list[ReadingOutcome]] = {}
    for one in found:
        groups.setdefault((one.claim, one.headline.label), []).append(one)
    return {key: group for key, group in groups.items() if group[0].reading is None}


@dataclass(frozen=True, kw_only=True)
class Robustness:
    """What the other readings say of one contrast of a claim.

    `others` have results; `untouched` of them share all cells with the study's own; `opposed`
    are on the other side of it. `moves` is how far each moves the plain network, in points.
    """

    contrast: str
    holds: bool
    others: int
    untouched: int
    opposed: tuple[str, ...]
    moves: Mapping[str, float]

    @property
    def robust(self) -> bool:
        """The claim is robust to interpretation: it holds here, and no reading opposes it of
        those that could."""
        return self.holds and self.others > self.untouched and not self.opposed

    @property
    def text(self) -> str:
        if not self.others:
            return "no other reading has results yet"
        text = f"same sign in {self.others - len(self.opposed)} of {self.others} other readings"
        if self.untouched:
            text += f" ({self.untouched} with the same numbers, as they share all cells)"
        return "; ".join([text, self._verdict(), *self._moved()])

    def _verdict(self) -> str:
        if self.opposed:
            return f"opposed under {' and under '.join(self.opposed)}"
        if self.others == self.untouched:
            return "none of them could oppose it"
        return "robust to interpretation" if self.robust else "no reading bears the claim out"

    def _moved(self) -> Iterator[str]:
        """The reading that moves the plain network most."""
        title, far = max(self.moves.items(), key=lambda item: abs(item[1]), default=("", 0.0))
        if far:
            yield f"{title} moves the baseline most, by {far:+.2f} points"


Readings = Mapping[str, Sequence[Robustness]]  # by claim
NONE: Readings = {}  # of a study without other readings


def robustness(group: Sequence[ReadingOutcome]) -> Robustness:
    """In how many readings the sign is that of the study's own, and which oppose it."""
    own, *others = group
    return Robustness(
        contrast=own.headline.label,
        holds=own.holds,
        others=len(others),
        untouched=sum(repr(one.headline) == repr(own.headline) for one in others),
        opposed=tuple(one.title for one in others if one.holds != own.holds),
        moves={
            one.title: one.baseline.estimate
            for one in others
            if one.baseline and math.isfinite(one.baseline.estimate)
        },
    )


def by_claim(found: Sequence[ReadingOutcome]) -> Readings:
    """What the other readings say of each claim, one a contrast."""
    claims: dict[str, list[Robustness]] = {}
    for (claim, _), group in by_contrast(found).items():
        claims.setdefault(claim, []).append(robustness(group))
    return claims


def ranges(group: Sequence[ReadingOutcome]) -> dict[str, float]:
    """By switch, how far apart its values bring the difference, in points; largest first.

    Only readings that change one switch alone tell what that switch does. Measured on the seeds
    that both have: on a partial grid a missing seed is not taken for the work of a switch.
    """
    values: dict[str, list[float]] = {}
    for one in group[1:]:
        changes = one.reading.changes if one.reading else ()
        if len(changes) == 1 and one.change and math.isfinite(one.change.estimate):
            values.setdefault(changes[0][0], [0.0]).append(one.change.estimate)
    spans = {switch: max(found) - min(found) for switch, found in values.items()}
    return dict(sorted(spans.items(), key=lambda item: -item[1]))
