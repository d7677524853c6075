"""Alpha spending: known boundaries, and false positives over all looks by simulation."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from tnfdt.evidence.statistics import row_test
from tnfdt.study.looks import Looks
from tnfdt.verdicts.looks import level, look_name, nominal_alphas, spent


def test_obrien_fleming_boundaries_are_those_of_the_books():
    # Lan-DeMets O'Brien-Fleming, five equal looks, two-sided 0.05 (Jennison and Turnbull, 2000)
    expected = [4.877, 3.357, 2.680, 2.290, 2.031]
    found = [stats.norm.isf(alpha / 2) for alpha in nominal_alphas((1, 2, 3, 4, 5))]
    assert found == pytest.approx(expected, abs=2e-3)


def test_one_look_is_an_ordinary_test():
    assert nominal_alphas((3,)) == pytest.approx((0.05,))
    assert spent(1.0) == pytest.approx(0.05)


def test_looks_by_seeds():
    looks = (3, 5, 8)
    levels = nominal_alphas(looks)
    assert list(levels) == sorted(levels)
    assert levels[-1] < 0.05
    assert [level(Looks(planned=looks, look=look)) for look in (1, 2, 3)] == list(levels)
    assert level(Looks()) == 0.05
    assert [look_name(looks, seeds) for seeds in (3, 5, 8)] == [
        "look 1 of 3", "look 2 of 3", "look 3 of 3"
    ]  # fmt: skip
    assert look_name((), 3) == ""


def simulate(runs: int, looks: tuple[int, ...]) -> float:
    """How often a true null is rejected at any look, by the row test on real-looking scores."""
    generator = np.random.default_rng(5)
    levels = nominal_alphas(looks)
    rejected = 0
    for _ in range(runs):
        difficulty = generator.normal(size=300)
        scores = [
            stats.norm.cdf(difficulty + generator.normal(0.5, 0.2, size=(looks[-1], 1)))
            > generator.random((looks[-1], 300))
            for _ in range(2)
        ]
        rejected += any(
            row_test(scores[0][:seeds], scores[1][:seeds]).p() < level
            for seeds, level in zip(looks, levels, strict=True)
        )
    return rejected / runs


def test_false_positives_over_all_looks_are_at_most_what_is_declared():
    assert simulate(1500, (3, 5, 8)) == pytest.approx(0.045, abs=0.017)


def test_looking_without_spending_is_worse():
    generator = np.random.default_rng(6)
    walk = generator.normal(size=(40_000, 8)).cumsum(1) / np.sqrt(np.arange(1, 9))
    at_looks = np.abs(walk[:, [2, 4, 7]])
    assert (at_looks > 1.96).any(1).mean() > 0.085
    levels = np.array([stats.norm.isf(level / 2) for level in nominal_alphas((3, 5, 8))])
    assert (at_looks > levels).any(1).mean() == pytest.approx(0.05, abs=0.004)
