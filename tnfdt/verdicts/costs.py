"""Evidence on costs: what a training of one method needs, as a multiple of another's.

And on shares counted in trained networks, which need no second method.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from tnfdt.evidence.contrasts import Blocks
from tnfdt.evidence.results import Results
from tnfdt.evidence.statistics import FloatArray, TTest, sample_sd
from tnfdt.study.paths import Cell
from tnfdt.verdicts.claims import CostTest, MeasureTest
from tnfdt.verdicts.hypotheses import Evidence, not_planned

Record = Mapping[str, Any]

_NO_GPU = ("cpu", "mps")  # where a record's peak memory is of the whole process

# Each cost from a training's record, None or 0 if it is not known there, and whether it means
# the same on another machine.
COSTS: dict[str, tuple[Callable[[Record], float | None], bool]] = {
    "parameters": (lambda record: record["metrics"].get("parameters"), True),
    "peak_memory_bytes": (lambda record: _gpu_memory(record), False),
    "seconds_per_image": (lambda record: _seconds_per_image(record["metrics"]), False),
}


def cost_evidence(test: CostTest, results: Results, blocks: Blocks) -> Iterator[Evidence]:
    """Rows for each dataset and model of the table, from cells paired by seed."""
    compared = "≤" if test.tolerance == 0 else "<"
    for dataset, model in _places(results, test.table):
        row = Evidence(
            table=test.table,
            dataset=dataset,
            model=model,
            measure=test.quantity,
            epsilon=None,
            a=test.a,
            b=test.b,
            hypothesis=f"{test.a} / {test.b} {compared} {1 + test.tolerance:g}",
            unit="ratio",
            side=-1,
            threshold=1 + test.tolerance,
        )
        absent = not_planned(row, results, blocks)
        yield replace(row, planned=False, missing=absent) if absent else _cost(row, results, blocks)


def _places(results: Results, table: str) -> list[tuple[str, str]]:
    cells = results.grid.get(table, ())
    return list(dict.fromkeys((cell.dataset, cell.model) for cell in cells)) or [("*", "*")]


def _cost(row: Evidence, results: Results, blocks: Blocks) -> Evidence:
    b_cells = {cell.seed: cell for cell in blocks.planned(row.dataset, row.model, row.b)}
    pairs: list[list[float]] = []
    missing: list[str] = []
    for a_cell in blocks.planned(row.dataset, row.model, row.a):
        if a_cell.seed in b_cells:
            values, absent = _cost_pair(row.measure, results, (a_cell, b_cells[a_cell.seed]))
            pairs.extend([values] if values else [])
            missing.extend(absent)
    row = replace(row, missing=tuple(missing))
    return _cost_tested(row, np.array(pairs)) if pairs else row


def _cost_pair(
    quantity: str, results: Results, cells: tuple[Cell, Cell]
) -> tuple[list[float], list[str]]:
    """The cost of both cells, or nothing and what is missing to compare them."""
    read, anywhere = COSTS[quantity]
    values, absent, hardware = [], [], []
    for cell in cells:
        record = results.record(cell)
        value = read(record) if record else None
        if record is None or not value:
            absent.append(cell.path if record is None else f"{cell.path} ({quantity} unknown)")
        else:
            values.append(float(value))
            hardware.append(record.get("hardware"))
    if not absent and not anywhere and hardware[0] != hardware[1]:
        absent.append(f"{cells[0].path} on the hardware of {cells[1].path}")
    return ([], absent) if absent else (values, [])


def _gpu_memory(record: Record) -> float | None:
    """What the paper's sentence is about; of a process most is the interpreter and libraries."""
    hardware = record.get("hardware")
    device = hardware.get("device") if isinstance(hardware, dict) else None
    return None if device in _NO_GPU else record["metrics"].get("peak_memory_bytes")


def _seconds_per_image(metrics: Record) -> float | None:
    """Of the processor where it computes, so that other jobs do not count; else on the clock."""
    on_the_clock = 1 / metrics["images_per_second"] if metrics.get("images_per_second") else None
    return metrics.get("cpu_seconds_per_image") or on_the_clock


def _cost_tested(row: Evidence, pairs: FloatArray) -> Evidence:
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
    low, high = test.interval()
    return replace(
        row,
        se=test.se,
        df=test.df,
        low=float(np.exp(low)),
        high=float(np.exp(high)),
        p=test.p(math.log(row.threshold)),
        status="undecided",
    )


Places = Mapping[tuple[str, str, str], float]  # by dataset, model and method
Shares = Mapping[tuple[str, float | None], Places]  # by quantity and epsilon


def measure_evidence(
    test: MeasureTest, results: Results, blocks: Blocks, shares: Shares
) -> Iterator[Evidence]:
    """Rows for each dataset and model of the table on which the method is planned."""
    for dataset, model in _places(results, test.table):
        row = Evidence(
            table=test.table,
            dataset=dataset,
            model=model,
            measure=test.quantity,
            epsilon=test.epsilon,
            a=test.a,
            b="",
            hypothesis=f"share in {test.a} ≤ {test.at_most:g}",
            unit="share",
            side=-1,
            threshold=test.at_most,
            counted=True,
        )
        absent = not_planned(row, results, blocks)
        yield replace(row, planned=False, missing=absent) if absent else _share(row, shares)


def _share(row: Evidence, shares: Shares) -> Evidence:
    places = shares.get((row.measure, row.epsilon), {})
    share = places.get((row.dataset, row.model, row.a))
    if share is None:
        absent = f"{row.dataset}/{row.model}/{row.a} ({row.measure.replace('_', ' ')} not measured)"
        return replace(row, missing=(absent,))
    status = "supported" if share <= row.threshold else "opposed"
    return replace(row, a_value=share, estimate=share, seeds_a=1, status=status)
