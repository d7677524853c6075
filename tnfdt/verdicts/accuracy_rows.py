"""Accuracies behind a claim: our difference, the paper's, and what keeps ours from being overread.

The guards are the floor, an attack that only differs in speed, and accuracy that is lost rather
than robustness.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from tnfdt.evidence.contrasts import POINTS, Blocks
from tnfdt.evidence.statistics import (
    ALPHA,
    PAPER_RUNS,
    TTest,
    difference,
    level_test,
    row_test,
    welch,
)
from tnfdt.files.records import Record
from tnfdt.verdicts.hypotheses import ClaimRow
from tnfdt.verdicts.published import Published, paper_model

SMALLER, LARGER = "smaller than published", "larger than published"
WITHIN = "published within interval"

ROOM = 0.3  # the share of the distance to 0 or 100 % that a margin may take
LOST = 1.0  # percent: below it on the last iterate, an attack has won
NO_ROOM, SPEED_ONLY = "no room", "speed only"


def with_published(row: ClaimRow, published: Published) -> ClaimRow:
    """The paper's own estimate: for this model, or for the only one its table has.

    And the paper on trial by its own ±: the row test on its means, SDs and three runs.
    """
    model = paper_model(published, row.table, row.dataset, row.model)
    a, b = (
        published.get((row.table, dataset, model, method, row.measure, row.epsilon))
        for dataset, method in row.sides
    )
    if a is None or b is None:
        return row
    test = welch((a.value, a.sd, PAPER_RUNS), (row.ratio * b.value, row.ratio * b.sd, PAPER_RUNS))
    row = replace(
        row, published=test.estimate, published_model=model, paper_p=test.p(row.threshold)
    )
    return replace(row, paper_says=_paper_says(row))


def _paper_says(row: ClaimRow) -> str:
    if math.isnan(row.paper_p):
        return "no ±"
    if not row.paper_p < ALPHA:
        return "not established"
    return "established" if row.side * (row.published - row.threshold) > 0 else "opposed"


def compared(row: ClaimRow, blocks: Blocks) -> ClaimRow:
    """The row with its estimate, test and guards, or with the cells that are missing."""
    block = blocks.get(row.dataset, row.model, row.measure, row.epsilon)
    other = blocks.get(row.against or row.dataset, row.model, row.measure, row.epsilon)
    at = "" if row.epsilon is None else f" at ε = {row.epsilon:g}"
    missing = [*block.missing.get(row.a, ()), *other.missing.get(row.b, ())]
    row = replace(row, missing=tuple(f"{cell.path}{at}" for cell in missing))
    if row.a not in block.scores or row.b not in other.scores:
        return row
    a, b = block.matrix(row.a), other.matrix(row.b)
    apart = difference(level_test(a), level_test(b)) if row.against else row_test(a, b, row.ratio)
    test = apart.scaled(POINTS)
    row = replace(
        row,
        a_value=POINTS * float(a.mean()),
        b_value=POINTS * float(b.mean()),
        **test.numbers(),
        p=test.p(row.threshold),
        mcnemar_p=() if row.against else tuple(block.mcnemar(row.a, row.b)),
        images=a.shape[1],
        seeds_a=len(a),
        seeds_b=len(b),
        size=size(test, row.side, row.published),
        status="undecided",
    )
    return _guarded(_attacked(row, blocks) if row.measure == "robust" else row)


def size(test: TTest, side: int, published: float) -> str:
    """Whether the interval excludes the paper's difference, and on which side of it."""
    low, high = sorted(side * end for end in test.interval())
    if math.isnan(low) or math.isnan(published):
        return ""
    if high < side * published:
        return SMALLER
    return LARGER if low > side * published else WITHIN


def _attacked(row: ClaimRow, blocks: Blocks) -> ClaimRow:
    """The row with its last iterates and its retention."""
    (last_a, kept_a), (last_b, kept_b) = (_side(row, *side, blocks) for side in row.sides)
    return replace(row, last_a=last_a, last_b=last_b, retention_a=kept_a, retention_b=kept_b)


def _side(row: ClaimRow, dataset: str, method: str, blocks: Blocks) -> tuple[float, float]:
    """Accuracy on the last iterate, and robust over clean accuracy on the same images, in %."""
    cells = blocks.planned(dataset, row.model, method)
    attacks = (blocks.results.attacked.get((cell, row.epsilon or 0.0)) for cell in cells)
    records = [attack.record for attack in attacks if attack]
    last = POINTS * _mean(records, "last_accuracy")
    clean = _mean(records, "clean_accuracy")
    return last, POINTS * _mean(records, "robust_accuracy") / clean if clean else math.nan


def _mean(records: list[Record], metric: str) -> float:
    """Over the seeds; nan if one of them has no such number."""
    values = [record["metrics"].get(metric, math.nan) for record in records]
    return float(np.mean(values)) if values else math.nan


def _guarded(row: ClaimRow) -> ClaimRow:
    """No room: the margin is a large part of what there is, or the paper's Δ impossible here."""
    expected = row.ratio * row.b_value + row.published
    no_room = row.margin > ROOM * min(row.b_value, 100 - row.b_value) or (
        math.isfinite(expected) and not 0 <= expected <= 100
    )
    speed_only = row.last_a < LOST and row.last_b < LOST  # false where they are not known
    return replace(row, guards=(NO_ROOM,) * no_room + (SPEED_ONLY,) * speed_only)
