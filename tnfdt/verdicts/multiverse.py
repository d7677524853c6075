"""Does a verdict depend on how the paper is read? Each claim under every reading of a study.

The study's own reading stays the primary one: its verdicts are made without any other. No reading
is chosen for its result, so the largest of many differences gets no mark of significance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tnfdt.evidence.results import Results
from tnfdt.study.multiverse import Reading
from tnfdt.verdicts.headline import Headline, contrast_label
from tnfdt.verdicts.judge import Verdict

OWN = "the study's own"

Judge = Callable[[Results], Sequence[Verdict]]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One headline of a claim under one reading; `reading` is None for the study's own."""

    claim: str
    says: str
    reading: Reading | None
    headline: Headline
    verdict: str
    holds: bool  # the estimate is on the claimed side

    @property
    def title(self) -> str:
        return self.reading.title if self.reading else OWN


def outcomes(results: Results, judge: Judge) -> list[Outcome]:
    """Every claim with a headline, under the study's own reading and then under the others."""
    found = [_outcome(v, one, None) for v in judge(results) for one in v.headlines]
    for reading in results.study.multiverse.readings:
        verdicts = judge(results.under(reading))
        found += [_outcome(v, one, reading) for v in verdicts for one in v.headlines]
    return found


def _outcome(verdict: Verdict, one: Headline, reading: Reading | None) -> Outcome:
    rows = [r for r in verdict.evidence if r.role == "claim" and contrast_label(r) == one.label]
    return Outcome(
        claim=verdict.claim.id,
        says=verdict.claim.says,
        reading=reading,
        headline=one,
        verdict=verdict.verdict,
        holds=rows[0].side * (one.estimate - rows[0].threshold) > 0,
    )


def by_contrast(found: Sequence[Outcome]) -> dict[tuple[str, str], list[Outcome]]:
    """The outcomes of each contrast that the study's own reading has, that one first."""
    groups: dict[tuple[str, str], list[Outcome]] = {}
    for one in found:
        groups.setdefault((one.claim, one.headline.label), []).append(one)
    return {key: group for key, group in groups.items() if group[0].reading is None}


def robustness(group: Sequence[Outcome]) -> str:
    """In how many readings the sign is that of the study's own, and which oppose it."""
    own, *others = group
    if not others:
        return "no other reading has results yet"
    against = [one.title for one in others if one.holds != own.holds]
    untouched = sum(repr(one.headline) == repr(own.headline) for one in others)
    text = f"same sign in {len(others) - len(against)} of {len(others)} other readings"
    text += f" ({untouched} with the same numbers, as they share all cells)" if untouched else ""
    if against:
        return f"{text}; opposed under {'; '.join(against)}"
    return f"{text}: robust to interpretation"


def ranges(group: Sequence[Outcome]) -> dict[str, float]:
    """By switch, how far apart its values bring the difference, in points; largest first.

    Only readings that change one switch alone tell what that switch does.
    """
    own, *others = group
    values: dict[str, list[float]] = {}
    for one in others:
        if one.reading and len(one.reading.changes) == 1:
            switch = one.reading.changes[0][0]
            values.setdefault(switch, [own.headline.estimate]).append(one.headline.estimate)
    spans = {switch: max(found) - min(found) for switch, found in values.items()}
    return dict(sorted(spans.items(), key=lambda item: -item[1]))
