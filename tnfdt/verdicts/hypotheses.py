"""The hypotheses of a claim: one row per comparison, dataset and model, before it is measured."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from tnfdt.evidence.contrasts import Blocks
from tnfdt.evidence.statistics import TTest
from tnfdt.verdicts.claims import Claim, Comparison

Identity = tuple[object, ...]


@dataclass(frozen=True, kw_only=True)
class ClaimRow:
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
    def sides(self) -> tuple[tuple[str, str], tuple[str, str]]:
        """Dataset and method of a and of b; of a share, b's method is empty."""
        return (self.dataset, self.a), (self.against or self.dataset, self.b)

    @property
    def label(self) -> str:
        """What is compared, such as "clean: tn − vanilla > 0"."""
        at = "" if self.epsilon is None else f" at ε = {self.epsilon:g}"
        return f"{self.measure.replace('_', ' ')}{at}: {self.hypothesis}"

    @property
    def identity(self) -> Identity:
        """The hypothesis that p tests: the same for every claim that rests on it, either way."""
        place, (a, b) = (self.measure, self.epsilon, self.model), self.sides
        if self.ratio == 1 and self.unit == "points" and a > b:
            return (*place, *b, *a, 1.0, -self.threshold + 0.0)
        return (*place, *a, *b, self.ratio, self.threshold)

    @property
    def test(self) -> TTest:
        return TTest(self.estimate, self.se, self.df)


def hypotheses(claim: Claim, blocks: Blocks) -> Iterator[ClaimRow]:
    """Every comparison of a claim on each of its datasets and each model of its table.

    The paper's claims are on all their datasets; a question of our own is asked of those that the
    study has.
    """
    for test in claim.comparisons:
        places = blocks.places(test.table) or [("*", "*")]
        if test.datasets:
            datasets, models = (dict.fromkeys(names) for names in zip(*places, strict=True))
            here = [name for name in test.datasets if claim.ours and name in datasets]
            places = [*product(here or test.datasets, models)]
        for place, against, ratio in product(places, test.against or ("",), test.ratios):
            yield _row(test, *place, against, ratio)


def _row(test: Comparison, dataset: str, model: str, against: str, ratio: float) -> ClaimRow:
    return ClaimRow(
        table=test.table,
        dataset=dataset,
        model=model,
        measure=test.measure,
        epsilon=test.epsilon,
        a=test.a,
        b=test.b,
        hypothesis=_hypothesis(test, against, ratio),
        unit=test.unit,
        side=test.side,
        threshold=test.threshold,
        margin=test.margin,
        ratio=ratio,
        against=against,
        role="claim" if ratio == 1 else "size",
        counted=test.unit == "share",
    )


def _hypothesis(test: Comparison, against: str, ratio: float) -> str:
    if test.unit == "share":
        return f"share in {test.a} ≤ {test.threshold:g}"
    if test.unit == "ratio":
        return f"{test.a} / {test.b} {'≤' if test.threshold == 1 else '<'} {test.threshold:g}"
    b = f"{ratio:g} × {test.b}" if ratio != 1 else test.b
    other = f" on {against}" if against else ""
    threshold = f"{test.threshold:g}".replace("-", "−")
    return f"{test.a} − {b}{other} {'>' if test.side > 0 else '<'} {threshold}"


def not_planned(row: ClaimRow, blocks: Blocks) -> tuple[str, ...]:
    """What a row needs that the study does not even plan, in words; nothing if it plans all."""
    audit = blocks.results.study.audit
    judged = audit.autoattack.epsilons if audit.autoattack else ()  # of its own
    known = judged if row.unit == "share" else blocks.results.epsilons
    if row.epsilon is not None and row.epsilon not in known:
        return (f"ε = {row.epsilon:g} (not in this study)",)
    return tuple(
        f"{dataset}/{row.model}/{method} (not in this study)"
        for dataset, method in row.sides
        if method and not blocks.planned(dataset, row.model, method)
    )
