"""From the results of a study to contrasts between its methods, one block at a time.

A block is all methods and seeds of one dataset and model under one metric: the unit within
which methods are compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from tnfdt.evidence.results import Results
from tnfdt.evidence.statistics import (
    FloatArray,
    TTest,
    benjamini_hochberg,
    mcnemar_exact,
    row_test,
    smallest_detectable,
)
from tnfdt.study.paths import Cell
from tnfdt.study.schema import UserError

BASELINE = "vanilla"
POINTS = 100.0  # scores are fractions, what is reported is percentage points


@dataclass(frozen=True)
class Block:
    """Scores [N] by method and seed, and the planned cells that have none yet."""

    scores: Mapping[str, Mapping[int, FloatArray]]
    missing: Mapping[str, Sequence[Cell]]

    def matrix(self, method: str) -> FloatArray:
        """Scores [S, N] of a method, its seeds in ascending order."""
        return np.stack([scores for _, scores in sorted(self.scores[method].items())])

    def has(self, *methods: str) -> bool:
        return all(self.scores.get(method) for method in methods)

    def test(self, a: str, b: str, ratio: float = 1.0) -> TTest:
        """mean(a) - ratio * mean(b) as fractions; both must have at least one seed."""
        return row_test(self.matrix(a), self.matrix(b), ratio)

    def mcnemar(self, a: str, b: str) -> list[float]:
        """McNemar's p for each seed that both methods have."""
        seeds = sorted(self.scores[a].keys() & self.scores[b].keys())
        return [mcnemar_exact(self.scores[a][seed], self.scores[b][seed]) for seed in seeds]


class Blocks:
    """The blocks of a study, each read when it is asked for."""

    def __init__(self, results: Results) -> None:
        self._results = results
        self._blocks: dict[tuple[str, str, str, float | None], Block] = {}
        self._cells: dict[tuple[str, str], list[Cell]] = {}
        for cell in dict.fromkeys(cell for cells in results.grid.values() for cell in cells):
            self._cells.setdefault((cell.dataset, cell.model), []).append(cell)

    def planned(self, dataset: str, model: str, method: str) -> list[Cell]:
        """The cells of a row of a table, one per seed; none if the study has no such row."""
        cells = self._cells.get((dataset, model), [])
        return [cell for cell in cells if cell.method == method]

    def get(self, dataset: str, model: str, metric: str, epsilon: float | None) -> Block:
        """A block, kept for the next question about it."""
        key = (dataset, model, metric, epsilon)
        if key not in self._blocks:
            self._blocks[key] = self.read(*key)
        return self._blocks[key]

    def read(self, dataset: str, model: str, metric: str, epsilon: float | None) -> Block:
        """A block from the results, not kept: on a large grid all of them fill the memory."""
        scores: dict[str, dict[int, FloatArray]] = {}
        missing: dict[str, list[Cell]] = {}
        images: dict[int, Cell] = {}
        for cell in self._cells.get((dataset, model), []):
            found = self._results.scores(cell, metric, epsilon)
            if found is None:
                missing.setdefault(cell.method, []).append(cell)
                continue
            _check_scores(found, cell, metric)
            images.setdefault(len(found), cell)
            scores.setdefault(cell.method, {})[cell.seed] = np.asarray(found, np.float64)
        _check_images(images, metric, epsilon)
        return Block(scores, missing)


def _check_scores(scores: FloatArray, cell: Cell, metric: str) -> None:
    # Written so that nan, which compares as false, fails too.
    if scores.ndim != 1 or scores.size == 0 or not ((scores >= 0) & (scores <= 1)).all():
        raise UserError(
            f"{cell.path}: the {metric} scores must be a list of numbers from 0 to 1, one per "
            "image; delete the cell's attack folder and run again"
        )


def _check_images(images: Mapping[int, Cell], metric: str, epsilon: float | None) -> None:
    if len(images) > 1:
        counts = ", ".join(f"{cell.path} has {count}" for count, cell in images.items())
        where = metric if epsilon is None else f"{metric} at epsilon {epsilon:g}"
        raise UserError(
            f"different numbers of images ({where}): {counts}; attack them again with one limit"
        )


def significance(results: Results, baseline: str = BASELINE) -> pd.DataFrame:
    """Every row of the tables against its baseline row, under every metric.

    Differences, intervals and smallest detectable effects are in percentage points; p_bh is
    Benjamini-Hochberg's over the whole frame. What one seed or one image cannot tell is nan; a
    contrast without results also has 0 seeds where they are missing.
    """
    rows = [
        {"table": table, **row}
        for table, cells in results.grid.items()
        for row in _table_rows(results, cells, baseline)
    ]
    frame = pd.DataFrame(rows, columns=_COLUMNS).astype({"epsilon": float, "p": float})
    frame["p_bh"] = benjamini_hochberg(frame["p"])
    return frame


_COLUMNS = [
    *("table", "dataset", "model", "method", "baseline", "metric", "epsilon"),
    *("images", "seeds", "baseline_seeds", "value", "baseline_value"),
    *("delta", "se", "df", "low", "high", "p", "p_bh", "smallest_detectable", "mcnemar_p"),
]


def _table_rows(
    results: Results, cells: Sequence[Cell], baseline: str
) -> Iterator[dict[str, object]]:
    metrics = [("clean", None), *(("robust", epsilon) for epsilon in results.epsilons)]
    blocks = Blocks(results)
    rows: dict[tuple[str, str], dict[str, None]] = {}  # methods, each once, in order
    for cell in cells:
        rows.setdefault((cell.dataset, cell.model), {})[cell.method] = None
    for (dataset, model), methods in rows.items():
        for metric, epsilon in metrics:
            block = blocks.read(dataset, model, metric, epsilon)
            identity = {"dataset": dataset, "model": model, "metric": metric, "epsilon": epsilon}
            for method in methods:
                if method != baseline:
                    yield {**identity, **_row(block, method, baseline)}


def _row(block: Block, method: str, baseline: str) -> dict[str, object]:
    return {
        "method": method,
        "baseline": baseline,
        "images": 0,
        "seeds": len(block.scores.get(method, {})),
        "baseline_seeds": len(block.scores.get(baseline, {})),
        **(_contrast_row(block, method, baseline) if block.has(method, baseline) else {}),
    }


def _contrast_row(block: Block, a: str, b: str) -> dict[str, object]:
    test = block.test(a, b).scaled(POINTS)
    low, high = test.interval()
    return {
        "images": block.matrix(a).shape[1],
        "value": POINTS * float(block.matrix(a).mean()),
        "baseline_value": POINTS * float(block.matrix(b).mean()),
        "delta": test.estimate,
        "se": test.se,
        "df": test.df,
        "low": low,
        "high": high,
        "p": test.p(),
        "smallest_detectable": smallest_detectable(test.se, test.df),
        "mcnemar_p": ";".join(f"{p:.4g}" for p in block.mcnemar(a, b)),
    }
