"""Evidence for a claim: one row per comparison of two methods on a dataset and model."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

from tnfdt.evidence.contrasts import POINTS, Block, Blocks
from tnfdt.evidence.results import Results
from tnfdt.evidence.statistics import (
    ALPHA,
    PAPER_RUNS,
    TTest,
    difference,
    level_test,
    row_test,
    welch,
)
from tnfdt.verdicts.claims import ContrastTest
from tnfdt.verdicts.guards import guarded
from tnfdt.verdicts.published import Number, Published, paper_model

SMALLER, LARGER = "smaller than published", "larger than published"
WITHIN = "published within interval"

Identity = tuple[object, ...]


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """One comparison: an estimate, a threshold and the claimed side of it.

    unit "points": a_value and b_value are accuracies in percent, the estimate is a - ratio * b.
    unit "ratio": the values are means in the quantity's own unit, the estimate is a / b, and se
    is of its logarithm. unit "share": the estimate is a share of all activations. `counted`
    rows are exact and have no p-value. p tests against the threshold, two-sided; mcnemar_p (one
    per seed) against no difference. `against` is b's dataset where it is another.

    detectable is the effect that p < 0.05 shows with 80 % power, detectable_holm the one that
    stays significant after Holm's correction. published is the paper's estimate and
    published_model the network it is for, which may not be this row's; paper_p and paper_says
    are the same test on the paper's own means and SDs. retention is robust / clean accuracy on
    the same images, last the accuracy on the last iterate, in percent.
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
    margin: float = 0.0
    ratio: float = 1.0
    against: str = ""
    role: str = "claim"
    planned: bool = True
    counted: bool = False
    regime: str = ""
    a_value: float = math.nan
    b_value: float = math.nan
    estimate: float = math.nan
    se: float = math.nan
    df: float = math.nan
    low: float = math.nan
    high: float = math.nan
    p: float = math.nan
    p_holm: float = math.nan
    detectable: float = math.nan
    detectable_holm: float = math.nan
    mcnemar_p: tuple[float, ...] = ()
    images: int = 0
    seeds_a: int = 0
    seeds_b: int = 0
    last_a: float = math.nan
    last_b: float = math.nan
    retention_a: float = math.nan
    retention_b: float = math.nan
    guards: tuple[str, ...] = ()
    published: float = math.nan
    published_model: str = ""
    paper_p: float = math.nan
    paper_says: str = ""
    size: str = ""
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
    def identity(self) -> Identity:
        """The hypothesis that p tests: the same for every claim that rests on it, either way."""
        place = (self.measure, self.epsilon, self.model)
        sides = [(self.dataset, self.a), (self.against or self.dataset, self.b)]
        if self.ratio == 1 and self.unit == "points" and sides[0] > sides[1]:
            return (*place, *sides[1], *sides[0], 1.0, -self.threshold + 0.0)
        return (*place, *sides[0], *sides[1], self.ratio, self.threshold)

    @property
    def test(self) -> TTest:
        return TTest(self.estimate, self.se, self.df)


def contrast_evidence(
    test: ContrastTest, results: Results, blocks: Blocks, published: Published
) -> Iterator[Evidence]:
    """Rows for each dataset of the test and each model of its table; two if there is a ratio."""
    ratios = (1.0,) if test.ratio is None else (1.0, test.ratio)
    for dataset, model, other, ratio in product(
        test.datasets, _models(results, test.table), test.against or ("",), ratios
    ):
        row = _with_published(_frame(test, dataset, model, other, ratio), published)
        yield _measured(row, results, blocks)


def _models(results: Results, table: str) -> list[str]:
    return list(dict.fromkeys(cell.model for cell in results.grid.get(table, ()))) or ["*"]


def _frame(test: ContrastTest, dataset: str, model: str, against: str, ratio: float) -> Evidence:
    side = 1 if test.direction in ("greater", "not_less") else -1
    margin = test.margin or 0.0
    threshold = -side * margin if margin else 0.0
    times = f"{ratio:g} × " if ratio != 1 else ""
    other = f" on {against}" if against else ""
    return Evidence(
        table=test.table,
        dataset=dataset,
        model=model,
        measure=test.metric,
        epsilon=test.epsilon,
        a=test.a,
        b=test.b,
        hypothesis=(
            f"{test.a} − {times}{test.b}{other} {'>' if side > 0 else '<'} {_signed(threshold)}"
        ),
        unit="points",
        side=side,
        threshold=threshold,
        margin=margin,
        ratio=ratio,
        against=against,
        role="claim" if ratio == 1 else "size",
    )


def _signed(number: float) -> str:
    return f"{number:g}".replace("-", "−")


def _measured(row: Evidence, results: Results, blocks: Blocks) -> Evidence:
    absent = not_planned(row, results, blocks)
    if absent:
        return replace(row, planned=False, missing=absent)
    block = blocks.get(row.dataset, row.model, row.measure, row.epsilon)
    other = blocks.get(row.against or row.dataset, row.model, row.measure, row.epsilon)
    at = "" if row.epsilon is None else f" at ε = {row.epsilon:g}"
    missing = [*block.missing.get(row.a, ()), *other.missing.get(row.b, ())]
    row = replace(row, missing=tuple(f"{cell.path}{at}" for cell in missing))
    if not (block.has(row.a) and other.has(row.b)):
        return row
    return guarded(_tested(row, block, other), results, blocks)


def not_planned(row: Evidence, results: Results, blocks: Blocks) -> tuple[str, ...]:
    """What a row needs that the study does not even plan, in words; nothing if it plans all."""
    if row.epsilon is not None and row.epsilon not in results.epsilons:
        return (f"ε = {row.epsilon:g} (not in this study)",)
    sides = [(row.dataset, row.a), (row.against or row.dataset, row.b)]
    return tuple(
        f"{dataset}/{row.model}/{method} (not in this study)"
        for dataset, method in sides
        if method and not blocks.planned(dataset, row.model, method)
    )


def _tested(row: Evidence, block: Block, other: Block) -> Evidence:
    a, b = block.matrix(row.a), other.matrix(row.b)
    if row.against:
        test = difference(level_test(a), level_test(b)).scaled(POINTS)
    else:
        test = row_test(a, b, row.ratio).scaled(POINTS)
    low, high = test.interval()
    return replace(
        row,
        a_value=POINTS * float(a.mean()),
        b_value=POINTS * float(b.mean()),
        estimate=test.estimate,
        se=test.se,
        df=test.df,
        low=low,
        high=high,
        p=test.p(row.threshold),
        mcnemar_p=() if row.against else tuple(block.mcnemar(row.a, row.b)),
        images=a.shape[1],
        seeds_a=len(a),
        seeds_b=len(b),
        size=size(test, row.side, row.published),
        status="undecided",
    )


def size(test: TTest, side: int, published: float) -> str:
    """Whether the interval excludes the paper's difference, and on which side of it."""
    low, high = sorted(side * end for end in test.interval())
    if math.isnan(low) or math.isnan(published):
        return ""
    if high < side * published:
        return SMALLER
    return LARGER if low > side * published else WITHIN


def _with_published(row: Evidence, published: Published) -> Evidence:
    """The paper's own estimate: for this model, or for the only one its table has."""
    model = paper_model(published, row.table, row.dataset, row.model)
    sides = [(row.dataset, row.a), (row.against or row.dataset, row.b)]
    a, b = (
        published.get((row.table, dataset, model, method, row.measure, row.epsilon))
        for dataset, method in sides
    )
    if a is None or b is None:
        return row
    row = replace(row, published=a.value - row.ratio * b.value, published_model=model)
    return _tried(row, a, b)


def _tried(row: Evidence, a: Number, b: Number) -> Evidence:
    """The paper on trial by its own ±: the row test on its means, SDs and three runs."""
    test = welch((a.value, a.sd, PAPER_RUNS), (row.ratio * b.value, row.ratio * b.sd, PAPER_RUNS))
    p = test.p(row.threshold)
    if math.isnan(p):
        return replace(row, paper_says="no ±")
    if not p < ALPHA:
        return replace(row, paper_p=p, paper_says="not established")
    claimed = row.side * (test.estimate - row.threshold) > 0
    return replace(row, paper_p=p, paper_says="established" if claimed else "opposed")
