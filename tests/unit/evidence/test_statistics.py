"""Hand-worked numbers, edge cases, oracles, and the error rates of the tests under the null."""

import math

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.weightstats import ttost_ind

from benchmarks.bench_statistics import Setting, headline_rejected, rejected
from tnfdt.evidence.statistics import (
    TTest,
    benjamini_hochberg,
    difference,
    equivalence,
    headline,
    headline_shared,
    holm,
    level_test,
    mcnemar_exact,
    paired_change,
    pooled_seed_variance,
    published_se,
    row_test,
    sample_sd,
    smallest_detectable,
    tost,
    welch,
)

# Two seeds, four images. Means per image: A 1, 1, 1/2, 1/2; B 1/2, 0, 1/2, 0, so that
# d = 1/2, 1, 0, 1/2 with mean 1/2 and variance 1/6. Seed means: A 3/4, 3/4; B 1/2, 0.
A = np.array([[1, 1, 1, 0], [1, 1, 0, 1]])
B = np.array([[1, 0, 1, 0], [0, 0, 0, 0]])


def test_row_test_by_hand():
    # Seed variances 0 and 1/8, two seeds each: v = 1/16 with one degree of freedom. v_img =
    # 1/6/4 = 1/24; the across-seed variance is 1/2 on two images of A and on two of B, so that
    # v_int = (1/4 + 1/4) / (2 * 4) = 1/16 > v_img and V = v: t = 2.
    test = row_test(A, B)
    assert test == TTest(0.5, 0.25, 1.0)
    # t with 1 df is Cauchy: p = 1 - 2 * atan(2) / pi.
    assert test.p() == pytest.approx(1 - 2 * math.atan(2) / math.pi)
    assert test.p(0.5) == 1.0
    assert test.interval() == pytest.approx((0.5 - 12.7062 / 4, 0.5 + 12.7062 / 4), abs=1e-4)


def test_row_test_adds_the_images_beyond_what_the_seeds_already_hold():
    a = np.array([[1, 1, 1, 1], [1, 1, 1, 1]])
    b = np.array([[1, 0, 1, 0], [1, 0, 1, 0]])
    # d = 0, 1, 0, 1: v = 0, v_img = (1/3)/4 = 1/12, v_int = 0. No df is spent on the images.
    assert row_test(a, b) == TTest(0.5, math.sqrt(1 / 12), math.inf)
    assert row_test(a, b).p() == pytest.approx(2 * stats.norm.sf(0.5 * math.sqrt(12)))


def test_a_paired_change_by_hand():
    # The change is 0.1 0.3, 0.2 0.4, 0.3 0.5 by seed. Seed means 0.2, 0.3, 0.4 with variance
    # 0.01: v = 1/300, 2 df. Image means 0.2, 0.4 with variance 0.02: v_img = 0.01; on each image
    # the seeds' variance is 0.01: v_int = 0.01 / 6. V = 1/300 + 1/120 = 7/600.
    before = np.array([[0.1, 0.7], [0.5, 0.2], [0.3, 0.0]])
    change = np.array([[0.1, 0.3], [0.2, 0.4], [0.3, 0.5]])
    test = paired_change(before + change, before)
    assert test.estimate == pytest.approx(0.3)
    assert test.se == pytest.approx(math.sqrt(7 / 600))
    assert test.df == pytest.approx(2 * (7 / 600) ** 2 * 300**2)


def test_what_a_seed_and_an_image_do_to_both_sides_cancels():
    before = np.array([[0.1, 0.7], [0.5, 0.2], [0.9, 0.0]])
    assert paired_change(before, before) == TTest(0.0, 0.0, math.inf)
    moved = paired_change(before + 0.25, before)
    assert (moved.estimate, moved.se) == (pytest.approx(0.25), 0.0)
    assert row_test(before + 0.25, before).se > 0.04  # of two that are not paired


def test_scores_of_other_seeds_or_images_cannot_be_paired():
    with pytest.raises(ValueError, match="cannot be paired"):
        paired_change(A, A[:1])


def test_row_test_with_both_parts_by_hand():
    a = np.array([[0.1, 0.3], [0.3, 0.5]])
    b = np.array([[0.0, 0.9], [0.0, 0.9]])
    # Seed means 0.2 and 0.4: variance 0.02, v = 0.01 on 1 df; b adds none. d = 0.2, -0.5:
    # v_img = 0.245 / 2; each image of a varies by 0.02 over seeds: v_int = 0.02 / (2 * 2).
    total = 0.01 + 0.1225 - 0.005
    test = row_test(a, b)
    assert test.estimate == pytest.approx(-0.15)
    assert test.se == pytest.approx(math.sqrt(total))
    assert test.df == pytest.approx(total**2 / 0.01**2)


def test_row_test_is_scipys_welch_where_the_images_add_nothing():
    generator = np.random.default_rng(5)
    a, b = generator.random((3, 50)), generator.random((4, 50))
    expected = stats.ttest_ind(a.mean(axis=1), b.mean(axis=1), equal_var=False)
    assert row_test(a, b).p() == pytest.approx(expected.pvalue)
    assert row_test(a, b).df == pytest.approx(expected.df)


def test_ratio_scales_b_in_estimate_and_variance():
    # d = a - 2b = 0, 1, -1/2, 1/2: mean 1/4, squares about it 1.25, v_img = (1.25/3)/4 = 0.104;
    # v_int = (1/4 + 4 * 1/4) / 8 = 0.156, so V = v = 4 * 1/16.
    test = row_test(A, B, ratio=2.0)
    assert test.estimate == pytest.approx(0.25)
    assert test.se == pytest.approx(0.5)


@pytest.mark.parametrize(("a", "b"), [(A[:1], B[:1]), (A[:1], B), (A, B[:1]), (A[:, :1], B[:, :1])])
def test_one_seed_or_one_image_is_missing_and_not_zero(a, b):
    test = row_test(a, b)
    assert test.estimate == a.mean() - b.mean()
    numbers = (test.se, test.df, test.p(), *test.interval(), tost(test, 1.0))
    assert np.isnan([*numbers, smallest_detectable(test.se, test.df)]).all()
    assert equivalence(test, 1.0) == ""


def test_no_variance_at_all():
    ones, zeros = np.ones((3, 4)), np.zeros((3, 4))
    same, apart = row_test(ones, ones), row_test(ones, zeros)
    assert (same.p(), *same.interval()) == (1.0, 0.0, 0.0)
    assert (apart.p(), *apart.interval()) == (0.0, 1.0, 1.0)
    assert smallest_detectable(same.se, same.df) == 0.0
    assert (tost(same, 0.1), tost(apart, 0.1)) == (0.0, 1.0)


@pytest.mark.parametrize(("a", "b"), [(A, B[:, :3]), (A[0], B[0]), (A[:, :0], B[:, :0])])
def test_shapes_that_do_not_fit_are_refused(a, b):
    with pytest.raises(ValueError, match="images"):
        row_test(a, b)


def test_two_levels_on_different_images_by_hand():
    # A: seed means equal, so v = 0; image means 1, 1, 1/2, 1/2 have variance 1/12, v_img =
    # 1/48, v_int = 1/4 / 8 = 1/32 > v_img. B: v = 1/16 on 1 df, v_img 1/12/4, v_int 1/32.
    assert level_test(A) == TTest(0.75, 0.0, math.inf)
    assert level_test(B) == TTest(0.25, 0.25, 1.0)
    assert difference(level_test(A), level_test(B)) == TTest(0.5, 0.25, 1.0)


def test_headline_by_hand():
    test = headline([TTest(1.0, 0.3, 4.0), TTest(3.0, 0.4, 2.0)])
    # sum V = 0.09 + 0.16 = 0.25, SE = 0.5 / 2; df = 0.25^2 / (0.09^2/4 + 0.16^2/2).
    assert test.estimate == pytest.approx(2.0)
    assert test.se == pytest.approx(0.25)
    assert test.df == pytest.approx(0.0625 / (0.0081 / 4 + 0.0256 / 2))
    alone = headline([TTest(1.0, 0.3, 4.0)])
    assert (alone.estimate, alone.se, alone.df) == pytest.approx((1.0, 0.3, 4.0))


def test_headline_of_what_is_not_known_is_not_known():
    assert math.isnan(headline([]).estimate)
    partial = headline([TTest(1.0, 0.3, 4.0), TTest(3.0, math.nan, math.nan)])
    assert partial.estimate == 2.0
    assert math.isnan(partial.se)
    assert math.isnan(partial.p())


def test_headline_on_shared_images_is_never_surer_than_a_row():
    shared = headline_shared([TTest(1.0, 0.3, 4.0), TTest(3.0, 0.4, 2.0)])
    assert (shared.estimate, shared.se, shared.df) == pytest.approx((2.0, 0.35, 2.0))
    assert math.isnan(headline_shared([]).estimate)


def test_welch_from_summaries_is_scipys():
    expected = stats.ttest_ind_from_stats(93.69, 0.12, 3, 92.52, 0.25, 3, equal_var=False)
    assert welch((93.69, 0.12, 3), (92.52, 0.25, 3)).p() == pytest.approx(expected.pvalue)


def test_tost_is_statsmodels():
    generator = np.random.default_rng(1)
    a, b = generator.normal(0.2, 0.3, 5), generator.normal(0, 0.4, 4)
    expected, _, _ = ttost_ind(a, b, -1, 1, usevar="unequal")
    test = welch((a.mean(), a.std(ddof=1), 5), (b.mean(), b.std(ddof=1), 4))
    assert tost(test, 1.0) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("estimate", "se", "outcome"),
    [
        (0.2, 0.1, "agrees"),
        (0.5, 0.1, "agrees"),  # significant, and surely below one point
        (2.0, 0.1, "differs"),
        (1.0, 0.1, "differs"),
        (-2.0, 0.1, "differs"),
        (-0.2, 0.1, "agrees"),
        (0.2, 1.0, "cannot tell"),
    ],
)
def test_agreement_within_a_point(estimate, se, outcome):
    assert equivalence(TTest(estimate, se, 4.0), 1.0) == outcome


def test_se_against_a_published_mean_of_three_runs():
    # Both SDs 0.61: sqrt(2 * 0.61^2 / 3) on 4 df, a half-width of 2.7764 * 0.49806 = 1.383.
    values = 73 + 0.61 * np.array([-1.0, 0.0, 1.0])
    se, df = published_se(values, sd=0.61)
    assert (se, df) == (pytest.approx(0.498063, abs=1e-6), pytest.approx(4.0))
    assert TTest(0.0, se, df).interval()[1] == pytest.approx(1.383, abs=1e-3)


def test_se_against_a_published_number_without_sd():
    values = [1.0, 2.0, 3.0]
    assert published_se(values, pooled=(0.09, 10)) == (pytest.approx(0.3 * math.sqrt(2 / 3)), 10)
    one_run = published_se(values, runs=1, pooled=(0.09, 10))
    assert one_run == (pytest.approx(0.3 * math.sqrt(4 / 3)), 10)
    assert np.isnan(published_se(values)).all()
    assert np.isnan(published_se([1.0], sd=0.2)).all()


def test_pooled_seed_variance_weighs_by_degrees_of_freedom():
    # Variances 1 (two df) and 2 (one df), and a method with one seed that adds nothing.
    assert pooled_seed_variance([[1, 2, 3], [0, 2], [7]]) == (pytest.approx(4 / 3), 3)
    variance, df = pooled_seed_variance([[1], [2]])
    assert math.isnan(variance)
    assert df == 0


def test_equal_accuracies_have_no_variance_in_spite_of_rounding():
    assert np.var([0.1, 0.1, 0.1], ddof=1) > 0  # what numpy says
    assert pooled_seed_variance([[0.1, 0.1, 0.1]]) == (0.0, 2)


@pytest.mark.parametrize("df", [1, 2, 4, 10, 12.5, 100, math.inf])
def test_smallest_detectable_has_the_power_it_promises(df):
    effect = smallest_detectable(0.3, df)
    draws = np.random.default_rng(0)
    normal = draws.standard_normal(200_000) + effect / 0.3
    chi = np.sqrt(draws.chisquare(df, 200_000) / df) if math.isfinite(df) else 1.0
    found = np.abs(normal / chi) > stats.t.ppf(0.975, df)
    assert found.mean() == pytest.approx(0.8, abs=0.004)


def test_smallest_detectable_of_a_z_test():
    assert smallest_detectable(2.0, math.inf) == pytest.approx(2 * (1.959964 + 0.841621), rel=1e-5)


def test_mcnemar_by_hand():
    # Five images only A gets right, one only B: p = 2 * (1 + 6) / 2**6.
    a = [1, 1, 1, 1, 1, 0, 1, 0]
    b = [0, 0, 0, 0, 0, 1, 1, 0]
    assert mcnemar_exact(a, b) == pytest.approx(14 / 64)
    assert mcnemar_exact(a, a) == 1.0
    assert mcnemar_exact(np.array(a, bool), np.array(b, bool)) == pytest.approx(14 / 64)
    assert mcnemar_exact([0.5, 0.25], [0.25, 0.0]) == pytest.approx(0.5)


@pytest.mark.parametrize(("wins", "losses"), [(0, 0), (3, 3), (0, 9), (812, 700), (4000, 4200)])
def test_mcnemar_is_the_binomial_test_on_the_discordant_images(wins, losses):
    a = np.repeat([1, 0, 1, 0], [wins, losses, 50, 50])
    b = np.repeat([0, 1, 1, 0], [wins, losses, 50, 50])
    expected = stats.binomtest(wins, wins + losses).pvalue if wins + losses else 1.0
    assert mcnemar_exact(a, b) == pytest.approx(expected)


def test_holm_by_hand():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.6, 0.9]) == pytest.approx([1.0, 1.0])
    assert holm([]).size == 0


def test_holm_counts_what_is_not_tested_yet():
    adjusted = holm([0.01, math.nan, 0.03])
    assert adjusted[[0, 2]] == pytest.approx([0.03, 0.06])
    assert math.isnan(adjusted[1])


def test_benjamini_hochberg_by_hand():
    adjusted = benjamini_hochberg([0.01, math.nan, 0.04, 0.03, 0.5])
    assert adjusted[[0, 2, 3, 4]] == pytest.approx([0.04, 0.16 / 3, 0.16 / 3, 0.5])
    assert math.isnan(adjusted[1])
    assert np.isnan(benjamini_hochberg([math.nan])).all()


def test_sample_sd_divides_by_n_minus_one():
    assert sample_sd([1, 3]) == pytest.approx(math.sqrt(2))
    assert math.isnan(sample_sd([1]))


def test_corrections_are_statsmodels():
    p = np.random.default_rng(3).random(40) ** 3
    assert holm(p) == pytest.approx(multipletests(p, method="holm")[1])
    assert benjamini_hochberg(p) == pytest.approx(multipletests(p, method="fdr_bh")[1])


@pytest.mark.parametrize(("wins", "losses"), [(1, 9), (30, 41), (812, 700)])
def test_mcnemar_is_statsmodels(wins, losses):
    a = np.repeat([1, 0, 1, 0], [wins, losses, 50, 60])
    b = np.repeat([0, 1, 1, 0], [wins, losses, 50, 60])
    expected = mcnemar([[50, wins], [losses, 60]], exact=True).pvalue
    assert mcnemar_exact(a, b) == pytest.approx(expected)


RUNS = 1500  # a Monte Carlo error of 0.6 %


@pytest.mark.parametrize("accuracy", [0.02, 0.5, 0.95])
@pytest.mark.parametrize("ratio", [1.0, 2.0])
@pytest.mark.parametrize("images", [200, 1000])
def test_false_positives_are_near_five_percent(accuracy, ratio, images):
    setting = Setting(accuracy=accuracy, ratio=ratio, images=images)
    assert 0.03 <= rejected(setting, RUNS) <= 0.07


def test_a_true_difference_is_covered():
    setting = Setting(accuracy=0.5, ratio=2.0, images=1000, effect=0.05)
    assert 0.03 <= rejected(setting, RUNS) <= 0.07


def test_the_headline_keeps_its_level():
    rows = [Setting(accuracy=a, ratio=r, images=300) for a in (0.1, 0.9) for r in (1.0, 2.0)]
    assert 0.03 <= headline_rejected(rows, RUNS) <= 0.07
