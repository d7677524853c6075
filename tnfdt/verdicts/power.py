"""Before a study is paid for: how likely it is to reproduce a claim, if the paper is right.

Every number is drawn as the paper gives it, its mean and its SD, and put through the row test;
a claim is reproduced where all of its rows come out. What the paper does not give is assumed,
in favour of the study: an accuracy under attack scatters over seeds as the clean one of its row
does (Table 2 as Table 1's row of the same method), and two methods disagree on no more images
than their difference calls for.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from scipy import stats  # type: ignore[import-untyped]

from tnfdt.evidence.statistics import ALPHA, FloatArray, smallest_detectable, summed
from tnfdt.verdicts.claims import Claim, Comparison
from tnfdt.verdicts.published import Key, Published

RUNS = 2000  # simulated studies: P is known to ± 2 points
SEEDS = (3, 5, 8, 10)


@dataclass(frozen=True)
class Row:
    """One comparison as the paper has it, in points: a − ratio · b on the claimed side."""

    a: Key
    b: Key
    ratio: float
    side: int
    threshold: float


@dataclass(frozen=True, kw_only=True)
class Power:
    """What `seeds` seeds would show of a claim."""

    claim: str
    seeds: int
    rows: int
    reproduced: float  # the chance that all rows come out
    smallest: float  # points: the largest of the rows' effects seen with 80 % power


def claim_power(claim: Claim, published: Published, seeds: int, images: int) -> Power | None:
    """The power of a claim at the paper's numbers; None if the paper has no numbers for it."""
    rows = [row for test in claim.contrasts for row in _rows(test, published)]
    if not rows:
        return None
    sds = {key: _sd(key, published) for row in rows for key in (row.a, row.b)}
    means = {key: published[key].value for key in sds}
    generator = np.random.default_rng(seeds)
    drawn = {
        key: generator.normal(means[key], sds[key], (RUNS, seeds)) for key in sorted(sds, key=str)
    }
    came_out, smallest = [], []
    for row in rows:
        image = _image_variance(row, means, images)
        came_out.append(_comes_out(row, drawn[row.a], drawn[row.b], image, generator))
        smallest.append(_smallest(sds[row.a], row.ratio * sds[row.b], image, seeds))
    return Power(
        claim=claim.id,
        seeds=seeds,
        rows=len(rows),
        reproduced=float(np.all(came_out, axis=0).mean()),
        smallest=max(smallest),
    )


def _rows(test: Comparison, published: Published) -> Iterator[Row]:
    """Every network of the paper's table that has both numbers; two rows if there is a ratio."""
    for dataset in test.datasets:
        models = sorted({key[2] for key in published if key[:2] == (test.table, dataset)})
        for other, model in product(test.against or (dataset,), models):
            a: Key = (test.table, dataset, model, test.a, test.measure, test.epsilon)
            b: Key = (test.table, other, model, test.b, test.measure, test.epsilon)
            if a in published and b in published:
                yield from (Row(a, b, ratio, test.side, test.threshold) for ratio in test.ratios)


def _sd(key: Key, published: Published) -> float:
    """The paper's SD of a row's clean accuracy, over the networks that have one."""
    table, dataset, model, method, *_ = key
    own = published.get((table, dataset, model, method, "clean", None))
    if own is not None and math.isfinite(own.sd):
        return own.sd
    known = [
        number.sd
        for found, number in published.items()
        if found[1] == dataset and found[3] == method and math.isfinite(number.sd)
    ]
    return float(np.mean(known)) if known else math.nan


def _image_variance(row: Row, means: dict[Key, float], images: int) -> float:
    """Of the difference, by chance of the images, in points squared: the least it can be."""
    delta = abs(means[row.a] - row.ratio * means[row.b]) / 100
    return 100**2 * delta * max(1 - delta, 0.0) / images


def _comes_out(
    row: Row, a: FloatArray, b: FloatArray, image: float, generator: np.random.Generator
) -> FloatArray:
    """In which simulated studies, bool [RUNS], the row test says what the claim says."""
    seeds = a.shape[1]
    parts = [a.var(axis=1, ddof=1) / seeds, row.ratio**2 * b.var(axis=1, ddof=1) / seeds]
    variance = parts[0] + parts[1] + image
    df = variance**2 / ((parts[0] ** 2 + parts[1] ** 2) / (seeds - 1))
    delta = a.mean(axis=1) - row.ratio * b.mean(axis=1)
    delta = delta + generator.normal(0, math.sqrt(image), RUNS) - row.threshold
    p = 2 * stats.t.sf(np.abs(delta) / np.sqrt(variance), df)
    return np.asarray((p < ALPHA) & (row.side * delta > 0))


def _smallest(sd_a: float, sd_b: float, image: float, seeds: int) -> float:
    test = summed(0.0, [(sd**2 / seeds, seeds - 1) for sd in (sd_a, sd_b)], image)
    return smallest_detectable(test.se, test.df)


def study_power(claims: Sequence[Claim], published: Published, images: int) -> list[Power]:
    """Claim by claim and number of seeds; claims without published numbers are left out."""
    found = (claim_power(claim, published, n, images) for claim in claims for n in SEEDS)
    return [power for power in found if power is not None]
