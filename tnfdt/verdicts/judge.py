"""From evidence to verdicts: how the comparisons behind a claim combine.

A claim is a list of contrasts, costs and measures (config/claims.yaml), each made on every
dataset it names and every model of its table in the study at hand. Each comparison is one row
of evidence: an estimate, a threshold, the claimed side of it, and a two-sided test at 5 %.

    greater, less           mean(a) - mean(b)        > 0, < 0
    not_less, not_greater   mean(a) - mean(b)        > -margin, < +margin
    greater with a ratio    mean(a) - mean(b)        > 0, and as a second row, its "size",
                            mean(a) - ratio mean(b)  > 0
    cost, tolerance > 0     a / b                    < 1 + tolerance, by a t-test on the log
                                                     ratios of cells paired by seed and hardware
    cost, tolerance = 0     a / b                    <= 1 on every seed: counted, no p-value
    measure                 share                    <= at_most: counted, no p-value

Each hypothesis is judged once, whatever number of claims rests on it:

    opposed     Holm's p over all hypotheses of the study is below 0.05, on the other side
    no room     not opposed, and the row cannot tell (see accuracy_rows.py)
    supported   p is below 0.05 and the estimate on the claimed side
    missing     one of the methods has no result
    undecided   anything else, such as everything that has a single seed

The verdict on the claim is the first of these that holds:

    contradicted    a row is opposed, for the claim is on all of them; not if it is a "size"
    not run         a row is missing; the cells it needs are named
    reproduced      all rows are supported: an intersection-union test, so that no correction
                    is due however many rows there are
    direction only  all estimates are on the claimed side and at least one row is supported
                    after Holm's correction, leaving the "sizes" aside
    inconclusive    anything else

Outside the paper's regime (see regime.py) the words are "holds here" for reproduced, "fails
here" for contradicted and "undecided here" for what lies between. So an effect too small to be
seen is never called "not reproduced"; a claimed doubling that is a significant increase by half
is "direction only"; and a claim on four datasets of which three are run is "not run" with the
evidence so far, unless that already contradicts it; a question of our own is asked of those of
its datasets that the study has. A row of which some seeds are missing counts with the seeds it
has.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from tnfdt.evidence.contrasts import Blocks
from tnfdt.evidence.measured_shares import Shares
from tnfdt.evidence.results import Results
from tnfdt.evidence.statistics import ALPHA, holm, smallest_detectable
from tnfdt.study.study import Study
from tnfdt.verdicts.accuracy_rows import NO_ROOM, compared, with_published
from tnfdt.verdicts.claims import Claim
from tnfdt.verdicts.cost_rows import cost, share
from tnfdt.verdicts.headline import Baseline, Headline, baseline_text, baselines, headlines
from tnfdt.verdicts.hypotheses import ClaimRow, Identity, hypotheses, not_planned
from tnfdt.verdicts.published import Published, published_values
from tnfdt.verdicts.reasons import reason
from tnfdt.verdicts.regime import ANY, PAPER, SCALED, regime

HERE = {
    "reproduced": "holds here",
    "direction only": "undecided here",
    "inconclusive": "undecided here",
    "contradicted": "fails here",
    "not run": "not run",
}
VERDICTS = tuple(dict.fromkeys((*HERE, *HERE.values())))


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What can be said of a claim, why, and on what evidence.

    regime is "paper", "scaled", "any" (a count is the same in every one) or "" where the study
    plans none of the rows; `differences` says what is not as in the paper, `hypotheses` how many
    Holm's correction counts, 0 if no row has a p-value.
    """

    claim: Claim
    verdict: str
    regime: str
    differences: tuple[str, ...]
    reason: str
    baseline: str
    headlines: tuple[Headline, ...]
    baselines: tuple[Baseline, ...]
    evidence: tuple[ClaimRow, ...]
    missing: tuple[str, ...]
    hypotheses: int


def judge_claims(
    claims: Sequence[Claim],
    results: Results,
    published: pd.DataFrame | None = None,
    paper: Study | None = None,
    shares: Shares | None = None,
    alpha: float = ALPHA,
) -> list[Verdict]:
    """A verdict on each claim.

    published: from load_published, adds the paper's numbers. paper: config/studies/paper.yaml;
    without it no verdict is on the paper. shares: what was counted in trained networks. alpha:
    the level of the tests, smaller where a study is looked at more than once.
    """
    blocks, numbers = Blocks(results), published_values(published)
    rows = {c.id: [*_evidence(c, blocks, numbers, shares or {})] for c in claims}
    corrected = _corrected(claims, rows)
    verdicts = []
    for claim in claims:
        judged = [_judged(row, corrected, alpha) for row in rows[claim.id]]
        regimes = [regime(row, results.study, paper) for row in judged]
        count = max((corrected[r.identity].hypotheses for r in judged if _tested(r)), default=0)
        found = combined(judged, alpha)
        verdicts.append(_verdict(claim, found, judged, regimes, count, blocks, numbers))
    return verdicts


def _tested(row: ClaimRow) -> bool:
    """Does Holm's correction count the row's hypothesis."""
    return row.planned and not row.counted


def _evidence(
    claim: Claim, blocks: Blocks, published: Published, shares: Shares
) -> Iterator[ClaimRow]:
    for row in hypotheses(claim, blocks):
        if row.unit == "points":
            row = with_published(row, published)
        if absent := not_planned(row, blocks):
            yield replace(row, planned=False, missing=absent)
        elif row.unit == "points":
            yield compared(row, blocks)
        elif row.unit == "ratio":
            yield cost(row, blocks)
        else:
            yield share(row, shares, blocks.results.study)


@dataclass(frozen=True)
class Correction:
    """Holm's p of a hypothesis and the number of hypotheses it was corrected for."""

    p: float
    hypotheses: int


def _corrected(
    claims: Sequence[Claim], rows: Mapping[str, Sequence[ClaimRow]]
) -> dict[Identity, Correction]:
    """The paper's hypotheses by themselves, so that a question of our own changes no verdict on
    the paper; our own by the correction over all.
    """
    papers = (row for claim in claims if not claim.ours for row in rows[claim.id])
    return _holm(row for claim in claims for row in rows[claim.id]) | _holm(papers)


def _holm(rows: Iterable[ClaimRow]) -> dict[Identity, Correction]:
    """Each hypothesis once; those that are planned and not run yet count too.

    Costs are measured on a clock, and no verdict on accuracy may change with the load of a
    machine: for accuracies the costs count as not run, which only makes Holm's p larger.
    """
    tested = {row.identity: row for row in rows if _tested(row)}
    p = np.array([row.p for row in tested.values()], dtype=float)
    timed = np.array([row.unit == "ratio" for row in tested.values()], dtype=bool)
    adjusted = np.where(timed, holm(p), holm(np.where(timed, math.nan, p)))
    return {
        identity: Correction(float(value), len(tested))
        for identity, value in zip(tested, adjusted, strict=True)
    }


def _judged(row: ClaimRow, corrected: Mapping[Identity, Correction], alpha: float) -> ClaimRow:
    correction = corrected.get(row.identity)
    if correction is None:
        return row
    levels = (alpha, alpha / correction.hypotheses)
    seen, after = (smallest_detectable(row.se, row.df, level) for level in levels)
    if row.unit == "ratio":
        seen, after = float(np.expm1(seen)), float(np.expm1(after))
    row = replace(row, p_holm=correction.p, detectable=seen, detectable_holm=after)
    return row if row.status == "missing" else replace(row, status=_status(row, alpha))


def _status(row: ClaimRow, alpha: float) -> str:
    if row.p_holm < alpha and not row.on_claimed_side:
        return "opposed"
    if NO_ROOM in row.guards:
        return NO_ROOM
    return "supported" if row.p < alpha and row.on_claimed_side else "undecided"


def _verdict(
    claim: Claim,
    found: str,
    judged: Sequence[ClaimRow],
    regimes: Sequence[tuple[str, tuple[str, ...]]],
    hypotheses: int,
    blocks: Blocks,
    published: Published,
) -> Verdict:
    pairs = zip(judged, regimes, strict=True)
    rows = tuple(replace(row, regime=name) for row, (name, _) in pairs)
    place = _regime([row.regime for row in rows])
    verdict = HERE[found] if place == SCALED else found
    beside = baselines(rows, blocks, published)
    return Verdict(
        claim=claim,
        verdict=verdict,
        regime=place,
        differences=tuple(dict.fromkeys(text for _, texts in regimes for text in texts)),
        reason=reason(found, rows),
        baseline=baseline_text(beside),
        headlines=headlines(rows),
        baselines=beside,
        evidence=rows,
        missing=tuple(dict.fromkeys(name for row in rows for name in row.missing)),
        hypotheses=hypotheses,
    )


def _regime(names: Sequence[str]) -> str:
    """Of a claim: the paper's only if all its rows are; "" if the study plans none of them."""
    return next((name for name in (SCALED, PAPER, ANY) if name in names), "")


def combined(rows: Sequence[ClaimRow], alpha: float = ALPHA) -> str:
    """The verdict of a claim in the paper's regime."""
    main = [row for row in rows if row.role == "claim"]
    if any(row.status == "opposed" for row in main):
        return "contradicted"
    if any(row.status == "missing" for row in rows):
        return "not run"
    if all(row.status == "supported" for row in rows):
        return "reproduced"
    supported = [row for row in main if row.status == "supported"]
    leaning = [row for row in main if row.status == "undecided" and row.on_claimed_side]
    sure = any(row.counted or row.p_holm < alpha for row in supported)
    return "direction only" if sure and len(supported + leaning) == len(main) else "inconclusive"
