"""A claim in one number: the mean difference over its rows, and the baselines it rests on."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from tnfdt.evidence.contrasts import Blocks
from tnfdt.evidence.statistics import TTest, headline, headline_shared
from tnfdt.study.methods import VANILLA
from tnfdt.study.names import dataset_name
from tnfdt.verdicts.accuracy_rows import size
from tnfdt.verdicts.hypotheses import ClaimRow
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


def headlines(rows: Sequence[ClaimRow]) -> tuple[Headline, ...]:
    """One per contrast of a claim, leaving costs, counts and the rows of a claimed size aside."""
    groups: dict[str, list[ClaimRow]] = {}
    for row in rows:
        if row.unit == "points" and row.role == "claim":
            groups.setdefault(contrast_label(row), []).append(row)
    found = (_headline(label, group) for label, group in groups.items())
    return tuple(one for one in found if one.rows)


def contrast_label(row: ClaimRow) -> str:
    """The label without b's dataset: those are the rows of one contrast."""
    other = f" on {row.against}"
    return row.label.replace(other, " on other datasets") if row.against else row.label


def _headline(label: str, group: Sequence[ClaimRow]) -> Headline:
    rows = [row for row in group if row.status != "missing"]
    test = mean_test([(row.dataset, row.test) for row in rows])
    published = float(np.mean([row.published for row in rows])) if rows else math.nan
    return Headline(
        label=label,
        rows=len(rows),
        planned=len(group),
        **test.numbers(),
        p=test.p(group[0].threshold),
        published=published,
        size=size(test, group[0].side, published),
    )


def mean_test(rows: Iterable[tuple[str, TTest]]) -> TTest:
    """Of (dataset, test): rows of one dataset share its images and weigh as one; datasets are
    independent."""
    datasets: dict[str, list[TTest]] = {}
    for dataset, test in rows:
        datasets.setdefault(dataset, []).append(test)
    return headline([headline_shared(tests) for tests in datasets.values()])


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """The plain network beside the paper's number for it, in percent and points.

    The last five are those of `agreement`.
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
    outcome_one_run: str


Place = tuple[str, str, str, str, float | None]  # table, dataset, model, metric, epsilon


def baselines(
    rows: Iterable[ClaimRow], blocks: Blocks, published: Published
) -> tuple[Baseline, ...]:
    """Of each dataset and model behind a claim: clean, and under the attack the claim is on."""
    places: dict[Place, None] = {
        (row.table, dataset, row.model, *column): None
        for row in rows
        if row.planned and row.unit == "points"
        for dataset, _ in row.sides
        for column in (("clean", None), (row.measure, row.epsilon))
    }
    found = (_baseline(place, blocks, published) for place in places)
    return tuple(one for one in found if one is not None)


def _baseline(place: Place, blocks: Blocks, published: Published) -> Baseline | None:
    table, dataset, model, metric, epsilon = place
    paper = paper_model(published, table, dataset, model)
    number = published.get((table, dataset, paper, VANILLA, metric, epsilon))
    block = blocks.get(dataset, model, metric, epsilon)
    if number is None or VANILLA not in block.scores:
        return None
    values = block.accuracies(VANILLA)
    return Baseline(
        dataset=dataset,
        model=model,
        published_model=paper,
        measure=metric,
        epsilon=epsilon,
        ours=float(np.mean(values)),
        published=number.value,
        **agreement(values, number, block.pooled(), table),
    )


def baseline_text(beside: Sequence[Baseline]) -> str:
    """Whether the plain network agrees with the paper's number, and by how much it does not."""
    groups: dict[str, list[str]] = {}
    for one in beside:
        at = "clean" if one.epsilon is None else f"ε = {one.epsilon:g}"
        name = f"{dataset_name(one.dataset)} {at}"
        far = "" if one.outcome == "agrees" else f" ({one.difference:+.1f})".replace("-", "−")
        word = one.outcome or "cannot tell"
        if one.outcome_one_run not in ("", one.outcome):
            word += f" (were the paper's number of one run: {one.outcome_one_run})"
        groups.setdefault(word, []).append(name + far)
    texts = [f"{word} on {', '.join(names)}" for word, names in groups.items()]
    return f"vanilla beside the paper's number (± 1 point): {'; '.join(texts)}" if texts else ""
