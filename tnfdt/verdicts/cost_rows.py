"""Evidence on costs: what a training of one method needs, as a multiple of another's.

And on shares counted in trained networks, which need no second method.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from tnfdt.evidence.contrasts import Blocks
from tnfdt.evidence.measured_shares import AUTOATTACK, Share, Shares
from tnfdt.evidence.results import Results
from tnfdt.evidence.statistics import FloatArray, TTest, sample_sd
from tnfdt.files.records import Record
from tnfdt.study.paths import Cell
from tnfdt.study.study import Study
from tnfdt.verdicts.hypotheses import ClaimRow

_NO_GPU = ("cpu", "mps")  # where a record's peak memory is of the whole process


def _gpu_memory(record: Record) -> float | None:
    """What the paper's sentence is about; of a process most is the interpreter and libraries."""
    hardware = record.get("hardware")
    device = hardware.get("device") if isinstance(hardware, dict) else None
    return None if device in _NO_GPU else record["metrics"].get("peak_memory_bytes")


def _seconds_per_image(record: Record) -> float | None:
    """Of the processor where it computes, so that other jobs do not count; else on the clock."""
    metrics = record["metrics"]
    on_the_clock = 1 / metrics["images_per_second"] if metrics.get("images_per_second") else None
    return metrics.get("cpu_seconds_per_image") or on_the_clock


# Each cost from a training's record; None or 0 if it is not known there.
COSTS: dict[str, Callable[[Record], float | None]] = {
    "parameters": lambda record: record["metrics"].get("parameters"),
    "peak_memory_bytes": _gpu_memory,
    "seconds_per_image": _seconds_per_image,
}
_ANYWHERE = ("parameters",)  # means the same on another machine


def cost(row: ClaimRow, blocks: Blocks) -> ClaimRow:
    """The row with its ratio, from cells paired by seed, or with the cells that are missing."""
    b_cells = {cell.seed: cell for cell in blocks.planned(row.dataset, row.model, row.b)}
    pairs: list[list[float]] = []
    missing: list[str] = []
    for cell in blocks.planned(row.dataset, row.model, row.a):
        if cell.seed in b_cells:
            values, absent = _cost_pair(row.measure, blocks.results, (cell, b_cells[cell.seed]))
            pairs += [values] if values else []
            missing += absent
    row = replace(row, missing=tuple(missing))
    return _tested(row, np.array(pairs)) if pairs else row


def _cost_pair(
    quantity: str, results: Results, cells: tuple[Cell, Cell]
) -> tuple[list[float], list[str]]:
    """The cost of both cells, or nothing and what is missing to compare them."""
    records = [results.record(cell) for cell in cells]
    values = [COSTS[quantity](record) if record else None for record in records]
    absent = [
        f"{cell.path} ({quantity} unknown)" if record else cell.path
        for cell, record, value in zip(cells, records, values, strict=True)
        if not value
    ]
    hardware = [record.get("hardware") for record in records if record]
    if not absent and quantity not in _ANYWHERE and hardware[0] != hardware[1]:
        absent = [f"{cells[0].path} on the hardware of {cells[1].path}"]
    return [] if absent else [float(value) for value in values if value], absent


def _tested(row: ClaimRow, pairs: FloatArray) -> ClaimRow:
    """pairs: [S, 2] costs of a and b by seed. The test is on log(a / b), an estimate of S seeds."""
    logs, count = np.log(pairs[:, 0] / pairs[:, 1]), len(pairs)
    test = TTest(float(logs.mean()), sample_sd(logs) / math.sqrt(count), count - 1)
    row = replace(
        row,
        a_value=float(pairs[:, 0].mean()),
        b_value=float(pairs[:, 1].mean()),
        estimate=math.exp(test.estimate),
        seeds_a=count,
        seeds_b=count,
    )
    if row.threshold == 1:
        status = "supported" if (pairs[:, 0] <= pairs[:, 1]).all() else "opposed"
        return replace(row, counted=True, status=status)
    low, high = np.exp(test.interval()).tolist()
    p = test.p(math.log(row.threshold))
    return replace(row, se=test.se, df=test.df, low=low, high=high, p=p, status="undecided")


def share(row: ClaimRow, shares: Shares, study: Study) -> ClaimRow:
    """The row with what was counted in its networks, and with what is missing."""
    found = shares.get((row.measure, row.epsilon), {}).get(_place(row))
    row = replace(row, missing=_not_measured(row, study, found))
    if found is None:
        return row
    status = "supported" if found.value <= row.threshold else "opposed"
    value, count = found.value, len(found.seeds)
    return replace(row, a_value=value, estimate=value, seeds_a=count, status=status)


def _place(row: ClaimRow) -> tuple[str, str, str]:
    return row.dataset, row.model, row.a


def _not_measured(row: ClaimRow, study: Study, found: Share | None) -> tuple[str, ...]:
    """What is missing, in words: cells where the study says which, else the row as a whole."""
    absent = _not_audited(row, study, found.seeds if found else ())
    if found is None:
        absent = absent or ["/".join(_place(row))]
    return tuple(f"{name} ({row.measure.replace('_', ' ')} not measured)" for name in absent)


def _not_audited(row: ClaimRow, study: Study, seeds: Sequence[int]) -> list[str]:
    """The cells of the row that the audit is to attack at its ε, but for those of these seeds."""
    asked = study.audit.autoattack
    if row.measure != AUTOATTACK or asked is None or row.epsilon not in asked.epsilons:
        return []
    cells = (cell for cell in study.audited() if cell[:3] == _place(row))
    return [cell.path for cell in cells if cell.seed not in seeds]
