"""The power of a claim: known limits, more seeds never hurt, and an independent simulation."""

import math

import numpy as np
import pytest
from scipy import stats

from tnfdt.figures.power import power_over_hours
from tnfdt.study.products import CLAIMS, PUBLISHED
from tnfdt.verdicts.claims import Claim, Comparison, load_claims
from tnfdt.verdicts.power import SEEDS, claim_power, study_power
from tnfdt.verdicts.published import PaperNumber, load_published, published_values

MANY = 10**9  # images: only the seeds scatter


def claim(**options):
    test = Comparison(
        **{"table": "table1", "datasets": ("c10",), "measure": "clean", "unit": "points"},
        **{"a": "a", "b": "b", "side": 1, "threshold": 0.0} | options,
    )
    texts = dict.fromkeys(("id", "family", "title", "says", "sentence", "section"), "x")
    return Claim(**texts, comparisons=(test,))


def numbers(a, b, sd=1.0):
    key = ("table1", "c10", "net")
    return {
        (*key, "a", "clean", None): PaperNumber(a, sd),
        (*key, "b", "clean", None): PaperNumber(b, sd),
    }


def test_a_huge_effect_is_always_seen_and_the_opposite_never():
    assert claim_power(claim(), numbers(60, 50), 3, MANY).reproduced > 0.99
    assert claim_power(claim(), numbers(50, 60), 3, MANY).reproduced == 0


def test_no_effect_comes_out_in_half_of_the_level():
    found = claim_power(claim(), numbers(50, 50), 8, MANY).reproduced
    assert found == pytest.approx(0.025, abs=0.012)


def test_a_margin_makes_equal_accuracies_a_success():
    found = claim_power(claim(threshold=-5.0), numbers(50, 50), 5, MANY)
    assert found.reproduced > 0.99


def test_against_scipys_welch_on_other_draws():
    draws = np.random.default_rng(1).normal([[52.0], [50.0]], 1.0, (3000, 2, 4))
    tested = stats.ttest_ind(draws[:, 0], draws[:, 1], axis=1, equal_var=False)
    expected = ((tested.pvalue < 0.05) & (tested.statistic > 0)).mean()
    found = claim_power(claim(), numbers(52, 50), 4, MANY).reproduced
    assert found == pytest.approx(expected, abs=0.04)


def test_fewer_images_cost_power_and_a_claim_without_numbers_has_none():
    few = claim_power(claim(), numbers(52, 50), 8, 100)
    assert few.reproduced < claim_power(claim(), numbers(52, 50), 8, MANY).reproduced
    assert few.smallest > claim_power(claim(), numbers(52, 50), 8, MANY).smallest
    assert claim_power(claim(), {}, 8, MANY) is None


def test_the_papers_claims():
    powers = study_power(load_claims(CLAIMS), published_values(load_published(PUBLISHED)), 10_000)
    by_claim = {(power.claim, power.seeds): power for power in powers}
    assert by_claim["tn-clean", 3].reproduced < 0.2 < 0.7 < by_claim["tn-clean", 10].reproduced
    assert by_claim["fdt-robust", 3].reproduced > 0.9
    assert all(0 <= p.reproduced <= 1 and math.isfinite(p.smallest) for p in powers)
    figure = power_over_hours(powers, {seeds: 10.0 * seeds for seeds in SEEDS})
    names = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert "tn-clean" in names
    assert "fdt-robust" not in names  # it needs no more seeds
