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
    benjamini_hochberg,
    mcnemar_exact,
    pooled_seed_variance,
    row_test,
    smallest_detectable,
)
from tnfdt.study.methods import VANILLA
from tnfdt.study.paths import Cell

POINTS = 100.0  # scores are fractions, what is reported is percentage points


@dataclass(frozen=True)
class Block:
    """Scores [N] by method and seed, and the planned cells that have none yet."""

    scores: Mapping[str, Mapping[int, FloatArray]]
    missing: Mapping[str, Sequence[Cell]]

    def matrix(self, method: str) -> FloatArray:
        """Scores [S, N] of a method, its seeds in ascending order."""
        return np.stack([scores for _, scores in sorted(self.scores[method].items())])

    def accuracies(self, method: str) -> list[float]:
        """In percent, one a seed."""
        return [POINTS * float(scores.mean()) for scores in self.scores[method].values()]

    def pooled(self) -> tuple[float, int]:
        """Variance of one seed's accuracy within the methods, and its degrees of freedom."""
        return pooled_seed_variance([self.accuracies(method) for method in self.scores])

    def mcnemar(self, a: str, b: str) -> list[float]:
        """McNemar's p for each seed that both methods have."""
        seeds = sorted(self.scores[a].keys() & self.scores[b].keys())
        return [mcnemar_exact(self.scores[a][seed], self.scores[b][seed]) for seed in seeds]


class Blocks:
    """The blocks of a study, each read when it is asked for."""

    def __init__(self, results: Results) -> None:
        self.results = results
        self._blocks: dict[tuple[str, str, str, float | None], Block] = {}
        self._cells: dict[tuple[str, str], list[Cell]] = {}
        for cell in dict.fromkeys(cell for cells in results.grid.values() for cell in cells):
            self._cells.setdefault(cell[:2], []).append(cell)

    def places(self, table: str) -> list[tuple[str, str]]:
        """The datasets and models of a table."""
        cells = self.results.grid.get(table, ())
        return list(dict.fromkeys(cell[:2] for cell in cells))

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
        for cell in self._cells.get((dataset, model), []):
            found = self.results.scores(cell, metric, epsilon)
            if found is None:
                missing.setdefault(cell.method, []).append(cell)
            else:
                scores.setdefault(cell.method, {})[cell.seed] = np.asarray(found, np.float64)
        return Block(scores, missing)


_COLUMNS = [
    *("table", "dataset", "model", "method", "baseline", "metric", "epsilon"),
    *("images", "seeds", "baseline_seeds", "value", "baseline_value"),
    *("delta", "se", "df", "low", "high", "p", "p_bh", "smallest_detectable", "mcnemar_p"),
]


def significance(results: Results) -> pd.DataFrame:
    """Every row of the tables against its vanilla row, under every metric.

    Differences, intervals and smallest detectable effects are in percentage points; p_bh is
    Benjamini-Hochberg's over the whole frame. What one seed or one image cannot tell is nan; a
    contrast without results also has 0 seeds where they are missing.
    """
    rows = [row for table in results.grid for row in _table_rows(Blocks(results), table)]
    frame = pd.DataFrame(rows, columns=_COLUMNS).astype({"epsilon": float, "p": float})
    frame["p_bh"] = benjamini_hochberg(frame["p"])
    return frame


def _table_rows(blocks: Blocks, table: str) -> Iterator[dict[str, object]]:
    cells = blocks.results.grid[table]
    metrics = [("clean", None), *(("robust", epsilon) for epsilon in blocks.results.epsilons)]
    for dataset, model in blocks.places(table):
        methods = dict.fromkeys(c.method for c in cells if c[:2] == (dataset, model))
        for metric, epsilon in metrics:
            block = blocks.read(dataset, model, metric, epsilon)
            place = {"table": table, "dataset": dataset, "model": model, "metric": metric}
            for method in methods:
                if method != VANILLA:
                    yield {**place, "epsilon": epsilon, **_against_baseline(block, method)}


def _against_baseline(block: Block, method: str) -> dict[str, object]:
    seeds, baseline_seeds = (len(block.scores.get(name, ())) for name in (method, VANILLA))
    row = {"method": method, "baseline": VANILLA, "images": 0}
    row |= {"seeds": seeds, "baseline_seeds": baseline_seeds}
    if not (seeds and baseline_seeds):
        return row
    a, b = block.matrix(method), block.matrix(VANILLA)
    test = row_test(a, b).scaled(POINTS)
    return {
        **row,
        "images": a.shape[1],
        "value": POINTS * float(a.mean()),
        "baseline_value": POINTS * float(b.mean()),
        "delta": test.estimate,
        **test.numbers(),
        "p": test.p(),
        "smallest_detectable": smallest_detectable(test.se, test.df),
        "mcnemar_p": ";".join(f"{p:.4g}" for p in block.mcnemar(method, VANILLA)),
    }
