"""From evidence to verdicts: how the comparisons behind a claim combine.

A claim is a list of contrasts and costs (config/claims.yaml), each made on every dataset it
names and every model of its table in the study at hand. Each comparison is one row of
evidence: an estimate, a threshold, the claimed side of it, and a two-sided test at 5 %.

    greater, less           mean(a) - mean(b)        > 0, < 0
    not_less, not_greater   mean(a) - mean(b)        > -margin, < +margin
    greater with a ratio    mean(a) - mean(b)        > 0, and as a second row, its "size",
                            mean(a) - ratio mean(b)  > 0
    cost, tolerance > 0     a / b                    < 1 + tolerance, by a t-test on the log
                                                     ratios of cells paired by seed and hardware
    cost, tolerance = 0     a / b                    <= 1 on every seed: counted, no p-value

Holm's correction runs over the distinct hypotheses of a family, counting those that the study
plans and has not run yet. A row is then

    supported   Holm's p is below 0.05 and the estimate is on the claimed side
    opposed     Holm's p is below 0.05 and the estimate is on the other side
    missing     one of the methods has no result
    undecided   anything else, such as everything that has a single seed

and the verdict on the claim is the first of these that holds:

    contradicted    a row is opposed, for the claim is on all of them; not if it is a "size"
    not run         a row is missing; the cells it needs are named
    reproduced      all rows are supported
    direction only  all estimates are on the claimed side and at least one row is supported,
                    leaving the "sizes" aside
    inconclusive    anything else; told with the largest of the effects that the undecided rows
                    could have detected (80 % power at 5 %, before Holm's correction)

So an effect too small to be seen is never called "not reproduced"; a claimed doubling that is
a significant increase by half is "direction only"; and a claim on four datasets of which three
are run is "not run" with the evidence so far, unless that already contradicts it. A row of
which some seeds are missing counts with the seeds it has.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from tnfdt.evidence.contrasts import Blocks
from tnfdt.evidence.results import Results
from tnfdt.evidence.statistics import ALPHA, holm, sign_flip
from tnfdt.verdicts.claims import Claim
from tnfdt.verdicts.costs import cost_evidence
from tnfdt.verdicts.hypotheses import Evidence, contrast_evidence
from tnfdt.verdicts.published import published_values

Identity = tuple[str, str, str]

VERDICTS = ("reproduced", "direction only", "inconclusive", "contradicted", "not run")


@dataclass(frozen=True, kw_only=True)
class AcrossCells:
    """An exact sign-flip test over the cells of one contrast: on these datasets, not others."""

    hypothesis: str
    cells: int
    p: float


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What can be said of a claim, why, and on what evidence."""

    claim: Claim
    verdict: str
    reason: str
    evidence: tuple[Evidence, ...]
    across: tuple[AcrossCells, ...]
    missing: tuple[str, ...]
    smallest_detectable: float


def evaluate(
    claims: Sequence[Claim], results: Results, published: pd.DataFrame | None = None
) -> list[Verdict]:
    """A verdict on each claim; `published` (from load_published) adds the paper's differences."""
    blocks, paper = Blocks(results), published_values(published)
    rows = {
        claim.id: [
            *(row for t in claim.contrasts for row in contrast_evidence(t, results, blocks, paper)),
            *(row for t in claim.costs for row in cost_evidence(t, results, blocks)),
        ]
        for claim in claims
    }
    corrected = {}
    for family in dict.fromkeys(claim.family for claim in claims):
        members = [claim for claim in claims if claim.family == family]
        corrected[family] = _holm(row for claim in members for row in rows[claim.id])
    return [
        _verdict(claim, [_judged(row, corrected[claim.family]) for row in rows[claim.id]])
        for claim in claims
    ]


def _holm(rows: Iterable[Evidence]) -> dict[Identity, float]:
    """Holm's p by hypothesis; one that stands behind two claims of the family counts once."""
    tested = {row.identity: row.p for row in rows if row.planned and row.decided_by != "count"}
    return dict(zip(tested, holm(list(tested.values())).tolist(), strict=True))


def _judged(row: Evidence, corrected: dict[Identity, float]) -> Evidence:
    p_holm = corrected.get(row.identity, math.nan)
    if row.status != "undecided" or not p_holm < ALPHA:
        return replace(row, p_holm=p_holm)
    status = "supported" if row.on_claimed_side else "opposed"
    return replace(row, p_holm=p_holm, status=status)


def _verdict(claim: Claim, rows: Sequence[Evidence]) -> Verdict:
    verdict = _combined(rows)
    detectable = [row.smallest_detectable for row in rows if row.status == "undecided"]
    return Verdict(
        claim=claim,
        verdict=verdict,
        reason=_reason(verdict, rows),
        evidence=tuple(rows),
        across=tuple(_across(rows)),
        missing=tuple(dict.fromkeys(name for row in rows for name in row.missing)),
        smallest_detectable=max((d for d in detectable if not math.isnan(d)), default=math.nan),
    )


def _combined(rows: Sequence[Evidence]) -> str:
    main = [row for row in rows if row.role == "claim"]
    if any(row.status == "opposed" for row in main):
        return "contradicted"
    if any(row.status == "missing" for row in rows):
        return "not run"
    if all(row.status == "supported" for row in rows):
        return "reproduced"
    established = [row.status == "supported" for row in main]
    if any(established) and all(
        known or row.on_claimed_side for known, row in zip(established, main, strict=True)
    ):
        return "direction only"
    return "inconclusive"


def _reason(verdict: str, rows: Sequence[Evidence]) -> str:
    supported = sum(row.status == "supported" for row in rows)
    parts = [f"{supported} of {len(rows)} comparisons established"]
    if verdict == "contradicted":
        opposed = [row for row in rows if row.status == "opposed" and row.role == "claim"]
        parts.append(f"{len(opposed)} significantly the other way: {_places(opposed)}")
    if verdict == "direction only":
        parts.append("all estimates on the claimed side")
    if verdict == "inconclusive":
        parts += ["none significantly the other way", _detectable(rows)]
    below = [row for row in rows if row.status == "opposed" and row.role == "size"]
    if below and verdict != "contradicted":
        parts.append(f"but significantly less than the size claimed: {_places(below)}")
    absent = sum(row.status == "missing" for row in rows)
    if absent:
        parts.append(f"{absent} without results")
    elif any(row.missing for row in rows):
        parts.append("some seeds without results")
    return ", ".join(parts)


def _places(rows: Sequence[Evidence]) -> str:
    return ", ".join(f"{row.dataset}/{row.model} ({row.a} against {row.b})" for row in rows)


def _detectable(rows: Sequence[Evidence]) -> str:
    known = [r for r in rows if r.status == "undecided" and not math.isnan(r.smallest_detectable)]
    if not known:
        return "nothing can be tested with one seed or one image"
    largest = max(known, key=lambda row: row.smallest_detectable)
    size = largest.smallest_detectable
    text = f"{size:.2f} points" if largest.unit == "points" else f"{size:.0%}"
    return f"effects below {text} could not be seen here (80 % power, before Holm)"


def _across(rows: Sequence[Evidence]) -> list[AcrossCells]:
    """One test per contrast that has results on two cells or more."""
    deltas: dict[str, list[float]] = {}
    for row in rows:
        if row.unit == "points" and row.status != "missing":
            deltas.setdefault(row.label, []).append(row.estimate - row.threshold)
    return [
        AcrossCells(hypothesis=hypothesis, cells=len(values), p=sign_flip(values))
        for hypothesis, values in deltas.items()
        if len(values) > 1
    ]
