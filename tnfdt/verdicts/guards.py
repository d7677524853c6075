"""What keeps a contrast from being read for more than it is: the floor, speed, lost accuracy."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from tnfdt.evidence.contrasts import POINTS, Blocks
from tnfdt.evidence.results import Results
from tnfdt.files.records import Record

if TYPE_CHECKING:
    from tnfdt.verdicts.hypotheses import Evidence

ROOM = 0.3  # the share of the distance to 0 or 100 % that a margin may take
LOST = 1.0  # percent: below it on the last iterate, an attack has won

NO_ROOM, SPEED_ONLY = "no room", "speed only"


def guarded(row: Evidence, results: Results, blocks: Blocks) -> Evidence:
    """A row with results, with its guards, its last iterates and its retention."""
    if row.measure == "robust":
        row = _attacked(row, results, blocks)
    no_room = _no_room(row)
    speed_only = row.last_a < LOST and row.last_b < LOST  # false where they are not known
    return replace(row, guards=(NO_ROOM,) * no_room + (SPEED_ONLY,) * speed_only)


def _no_room(row: Evidence) -> bool:
    """Is the margin a large part of what there is, or the paper's difference impossible here."""
    expected = row.ratio * row.b_value + row.published
    return row.margin > ROOM * min(row.b_value, 100 - row.b_value) or (
        math.isfinite(expected) and not 0 <= expected <= 100
    )


def _attacked(row: Evidence, results: Results, blocks: Blocks) -> Evidence:
    last_a, kept_a = _side(row, row.dataset, row.a, results, blocks)
    last_b, kept_b = _side(row, row.against or row.dataset, row.b, results, blocks)
    return replace(row, last_a=last_a, last_b=last_b, retention_a=kept_a, retention_b=kept_b)


def _side(
    row: Evidence, dataset: str, method: str, results: Results, blocks: Blocks
) -> tuple[float, float]:
    """Accuracy on the last iterate, and robust over clean accuracy on the same images, in %."""
    cells = blocks.planned(dataset, row.model, method)
    attacks = (results.attacked.get((cell, row.epsilon or 0.0)) for cell in cells)
    records = [attack.record for attack in attacks if attack]
    last = POINTS * _mean(records, "last_accuracy")
    clean = _mean(records, "clean_accuracy")
    return last, POINTS * _mean(records, "robust_accuracy") / clean if clean else math.nan


def _mean(records: list[Record], metric: str) -> float:
    """Over the seeds; nan if one of them has no such number."""
    values = [record["metrics"].get(metric, math.nan) for record in records]
    return float(np.mean(values)) if values else math.nan
