"""A claim in one number: the mean difference over its rows, and the baselines it stands on."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from tnfdt.evidence.contrasts import BASELINE, POINTS, Block, Blocks
from tnfdt.evidence.statistics import TTest, headline, headline_shared, pooled_seed_variance
from tnfdt.verdicts.hypotheses import Evidence, size
from tnfdt.verdicts.published import Published, agreement, paper_model


@dataclass(frozen=True, kw_only=True)
class Headline:
    """The mean of one contrast over its rows with results, in points.

    `published` is the mean of the paper's differences on the same rows, nan if one is missing.
    """

    label: str
    rows: int
    planned: int
    estimate: float
    se: float
    df: float
    low: float
    high: float
    p: float
    published: float
    size: str


def headlines(rows: Sequence[Evidence]) -> tuple[Headline, ...]:
    """One per contrast of a claim, leaving costs, counts and the rows of a claimed size aside."""
    groups: dict[str, list[Evidence]] = {}
    for row in rows:
        if row.unit == "points" and row.role == "claim":
            groups.setdefault(contrast_label(row), []).append(row)
    found = (_headline(label, group) for label, group in groups.items())
    return tuple(one for one in found if one.rows)


def contrast_label(row: Evidence) -> str:
    """The label without b's dataset: those are the rows of one contrast."""
    return (
        row.label.replace(f" on {row.against}", " on other datasets") if row.against else row.label
    )


def _headline(label: str, group: Sequence[Evidence]) -> Headline:
    rows = [row for row in group if row.status != "missing"]
    test = _mean_test(rows)
    low, high = test.interval()
    published = float(np.mean([row.published for row in rows])) if rows else math.nan
    return Headline(
        label=label,
        rows=len(rows),
        planned=len(group),
        estimate=test.estimate,
        se=test.se,
        df=test.df,
        low=low,
        high=high,
        p=test.p(group[0].threshold),
        published=published,
        size=size(test, group[0].side, published),
    )


def _mean_test(rows: Sequence[Evidence]) -> TTest:
    """Rows of one dataset share its images and weigh as one; datasets are independent."""
    datasets: dict[str, list[TTest]] = {}
    for row in rows:
        datasets.setdefault(row.dataset, []).append(row.test)
    return headline([headline_shared(tests) for tests in datasets.values()])


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """The plain network beside the paper's number for it, in percent and points.

    Table 2 does not say how many runs its numbers are of: `outcome` takes three, as Table 1 has,
    and outcome_one_run one.
    """

    dataset: str
    model: str
    published_model: str
    measure: str
    epsilon: float | None
    ours: float
    published: float
    difference: float
    low: float
    high: float
    outcome: str
    outcome_one_run: str = ""


def baselines(
    rows: Iterable[Evidence], blocks: Blocks, published: Published
) -> tuple[Baseline, ...]:
    """Of each dataset and model behind a claim: clean, and under the attack the claim is on."""
    places = {
        (row.table, dataset, row.model, *column): None
        for row in rows
        if row.planned and row.unit == "points"
        for dataset in filter(None, (row.dataset, row.against))
        for column in (("clean", None), (row.measure, row.epsilon))
    }
    found = (_baseline(*place, blocks, published) for place in places)
    return tuple(one for one in found if one is not None)


def _baseline(
    table: str,
    dataset: str,
    model: str,
    metric: str,
    epsilon: float | None,
    blocks: Blocks,
    published: Published,
) -> Baseline | None:
    paper = paper_model(published, table, dataset, model)
    number = published.get((table, dataset, paper, BASELINE, metric, epsilon))
    block = blocks.get(dataset, model, metric, epsilon)
    if number is None or not block.has(BASELINE):
        return None
    values = accuracies(block, BASELINE)
    pooled = pooled_seed_variance([accuracies(block, method) for method in block.scores])
    found = agreement(values, number, pooled)
    one_run = agreement(values, number, pooled, runs=1).outcome if table == "table2" else ""
    return Baseline(
        dataset=dataset,
        model=model,
        published_model=paper,
        measure=metric,
        epsilon=epsilon,
        ours=float(np.mean(values)),
        published=number.value,
        **vars(found),
        outcome_one_run=one_run,
    )


def accuracies(block: Block, method: str) -> list[float]:
    """In percent, one a seed."""
    return [POINTS * float(scores.mean()) for scores in block.scores[method].values()]
