"""Evidence for a claim: one row per comparison of two methods on a dataset and model."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from tnfdt.evidence.contrasts import POINTS, Block, Blocks
from tnfdt.evidence.results import Results
from tnfdt.verdicts.claims import ContrastTest
from tnfdt.verdicts.published import Published


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """One comparison: an estimate, a threshold and the claimed side of it.

    unit "points": a_value and b_value are accuracies in percent, the estimate is their
    difference (a - b, or a - ratio * b where the hypothesis says so). unit "ratio": the values
    are means in the quantity's own unit, the estimate is a / b. p tests against the threshold;
    pooled_p, welch_p and mcnemar_p (one per seed) against no difference. published is the
    paper's estimate, published_model the network it is for, which may not be this row's.
    """

    table: str
    dataset: str
    model: str
    measure: str
    epsilon: float | None
    a: str
    b: str
    hypothesis: str
    unit: str
    side: int
    threshold: float
    role: str = "claim"
    planned: bool = True
    a_value: float = math.nan
    b_value: float = math.nan
    estimate: float = math.nan
    low: float = math.nan
    high: float = math.nan
    p: float = math.nan
    p_holm: float = math.nan
    smallest_detectable: float = math.nan
    decided_by: str = "none (not run)"
    pooled_p: float = math.nan
    welch_p: float = math.nan
    mcnemar_p: tuple[float, ...] = ()
    images: int = 0
    seeds_a: int = 0
    seeds_b: int = 0
    published: float = math.nan
    published_model: str = ""
    missing: tuple[str, ...] = ()
    status: str = "missing"

    @property
    def on_claimed_side(self) -> bool:
        return self.side * (self.estimate - self.threshold) > 0

    @property
    def label(self) -> str:
        """What is compared, such as "clean: tn − vanilla > 0"."""
        at = "" if self.epsilon is None else f" at ε = {self.epsilon:g}"
        return f"{self.measure.replace('_', ' ')}{at}: {self.hypothesis}"

    @property
    def identity(self) -> tuple[str, str, str]:
        """Equal for rows that test the same hypothesis, whichever claims they are for."""
        return self.dataset, self.model, self.label


def contrast_evidence(
    test: ContrastTest, results: Results, blocks: Blocks, published: Published
) -> Iterator[Evidence]:
    """Rows for each dataset of the test and each model of its table; two if there is a ratio."""
    for dataset in test.datasets:
        for model in _models(results, test.table):
            for ratio in (1.0,) if test.ratio is None else (1.0, test.ratio):
                row = _with_published(_frame(test, dataset, model, ratio), ratio, published)
                yield _measured(row, ratio, results, blocks)


def _models(results: Results, table: str) -> list[str]:
    return list(dict.fromkeys(cell.model for cell in results.grid.get(table, ()))) or ["*"]


def _frame(test: ContrastTest, dataset: str, model: str, ratio: float) -> Evidence:
    side = 1 if test.direction in ("greater", "not_less") else -1
    margin = test.margin or 0.0
    threshold = -side * margin if margin else 0.0
    times = f"{ratio:g} × " if ratio != 1 else ""
    return Evidence(
        table=test.table,
        dataset=dataset,
        model=model,
        measure=test.metric,
        epsilon=test.epsilon,
        a=test.a,
        b=test.b,
        hypothesis=f"{test.a} − {times}{test.b} {'>' if side > 0 else '<'} {_signed(threshold)}",
        unit="points",
        side=side,
        threshold=threshold,
        role="claim" if ratio == 1 else "size",
    )


def _signed(number: float) -> str:
    return f"{number:g}".replace("-", "−")


def _measured(row: Evidence, ratio: float, results: Results, blocks: Blocks) -> Evidence:
    absent = not_planned(row, results, blocks)
    if absent:
        return replace(row, planned=False, missing=absent)
    block = blocks.get(row.dataset, row.model, row.measure, row.epsilon)
    at = "" if row.epsilon is None else f" at ε = {row.epsilon:g}"
    missing = [*block.missing.get(row.a, ()), *block.missing.get(row.b, ())]
    row = replace(row, missing=tuple(f"{cell.path}{at}" for cell in missing))
    return _tested(row, ratio, block) if block.has(row.a, row.b) else row


def not_planned(row: Evidence, results: Results, blocks: Blocks) -> tuple[str, ...]:
    """What a row needs that the study does not even plan, in words; nothing if it plans all."""
    if row.epsilon is not None and row.epsilon not in results.epsilons:
        return (f"ε = {row.epsilon:g} (not in this study)",)
    return tuple(
        f"{row.dataset}/{row.model}/{method} (not in this study)"
        for method in (row.a, row.b)
        if not blocks.planned(row.dataset, row.model, method)
    )


def _tested(row: Evidence, ratio: float, block: Block) -> Evidence:
    result = block.contrast(row.a, row.b, ratio)
    a, b = block.matrix(row.a), block.matrix(row.b)
    return replace(
        row,
        a_value=POINTS * float(a.mean()),
        b_value=POINTS * float(b.mean()),
        estimate=POINTS * result.delta,
        low=POINTS * result.low,
        high=POINTS * result.high,
        p=result.test.p(row.threshold / POINTS),
        smallest_detectable=POINTS * result.smallest_detectable,
        decided_by=result.decided_by,
        pooled_p=result.pooled.p(),
        welch_p=result.welch.p(),
        mcnemar_p=tuple(block.mcnemar(row.a, row.b)),
        images=a.shape[1],
        seeds_a=len(a),
        seeds_b=len(b),
        status="undecided",
    )


def _with_published(row: Evidence, ratio: float, published: Published) -> Evidence:
    """The paper's own estimate: for this model, or for the only one its table has."""
    models = {key[2] for key in published if key[:2] == (row.table, row.dataset)}
    model = row.model if row.model in models or len(models) != 1 else models.pop()
    a, b = (
        published.get((row.table, row.dataset, model, method, row.measure, row.epsilon))
        for method in (row.a, row.b)
    )
    if a is None or b is None:
        return row
    return replace(row, published=a - ratio * b, published_model=model)
