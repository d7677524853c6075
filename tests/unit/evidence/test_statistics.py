"""Hand-worked numbers, edge cases, and the error rate of the test under the null."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from tnfdt.evidence.statistics import (
    TTest,
    benjamini_hochberg,
    contrast,
    holm,
    mcnemar_exact,
    pooled_seed_variance,
    prediction_interval,
    sample_sd,
    sign_flip,
    smallest_detectable,
)

# Two seeds, four images. Means per image: A 1, 1, 1/2, 1/2; B 1/2, 0, 1/2, 0, so that
# d = 1/2, 1, 0, 1/2 with mean 1/2 and variance 1/6. Seed means: A 3/4, 3/4; B 1/2, 0.
A = np.array([[1, 1, 1, 0], [1, 1, 0, 1]])
B = np.array([[1, 0, 1, 0], [0, 0, 0, 0]])


def test_contrast_by_hand():
    result = contrast(A, B, seed_variance=0.01, seed_df=4)
    # v = 2 * 0.01 / 2; v_img = 1/6/4 = 1/24; the across-seed variance is 1/2 on two images
    # of A and on two of B, so v_int = (1/4 + 1/4) / (2 * 4) = 1/16 > v_img and V = v.
    assert result.delta == pytest.approx(0.5)
    assert result.pooled.se == pytest.approx(0.1)
    assert result.pooled.df == pytest.approx(4)
    # t = 5 on 4 df; the 97.5 % point of t with 4 df is 2.776.
    assert result.pooled.p() == pytest.approx(0.00749, abs=1e-5)
    assert result.pooled.interval() == pytest.approx((0.5 - 0.27764, 0.5 + 0.27764), abs=1e-5)


def test_contrast_adds_the_images_beyond_what_the_seeds_already_hold():
    a = np.array([[1, 1, 1, 1], [1, 1, 1, 1]])
    b = np.array([[1, 0, 1, 0], [1, 0, 1, 0]])
    result = contrast(a, b, seed_variance=0.01, seed_df=4)
    # d = 0, 1, 0, 1: v_img = (1/3)/4 = 1/12, v_int = 0, v = 0.01, V = 0.01 + 1/12.
    total = 0.01 + 1 / 12
    assert result.pooled.se == pytest.approx(math.sqrt(total))
    assert result.pooled.df == pytest.approx(total**2 / (0.01**2 / 4))


def test_welch_by_hand():
    result = contrast(A, B, seed_variance=0.01, seed_df=4)
    # Seed variances 0 and 1/8, two seeds each: V = 1/16 with one degree of freedom, t = 2.
    # t with 1 df is Cauchy: p = 1 - 2 * atan(2) / pi.
    assert result.welch == TTest(0.5, 0.25, 1.0)
    assert result.decided_by == "welch"
    assert result.p == pytest.approx(1 - 2 * math.atan(2) / math.pi)
    assert (result.low, result.high) == result.welch.interval()


def test_welch_is_scipys_where_the_images_add_nothing():
    generator = np.random.default_rng(5)
    a, b = generator.random((3, 50)), generator.random((4, 50))
    result = contrast(a, b, seed_variance=0.01, seed_df=5)
    expected = stats.ttest_ind(a.mean(axis=1), b.mean(axis=1), equal_var=False)
    assert result.welch.p() == pytest.approx(expected.pvalue)
    assert result.welch.df == pytest.approx(expected.df)


@pytest.mark.parametrize(("spread", "judge"), [(1.9, "seed-and-image"), (2.1, "welch")])
def test_welch_decides_beyond_a_twofold_sd(spread, judge):
    base = np.array([[0.4], [0.5], [0.6]]) + np.linspace(-0.1, 0.1, 5)
    wide = 0.5 + spread * (base - 0.5)
    assert contrast(base, wide, 0.01, 4).decided_by == judge
    assert contrast(wide, base, 0.01, 4).decided_by == judge


def test_unequal_numbers_of_seeds_weigh_by_their_own():
    a, b = np.tile([0.0, 1.0, 1.0], (3, 1)), np.tile([0.0, 1.0, 1.0], (2, 1))
    result = contrast(a, b, seed_variance=0.06, seed_df=3)
    assert result.pooled.se == pytest.approx(math.sqrt(0.06 * (1 / 3 + 1 / 2)))


def test_ratio_scales_b_in_estimate_and_variance():
    result = contrast(A, B, seed_variance=0.01, seed_df=4, ratio=2.0)
    # d = a - 2b = 0, 1, -1/2, 1/2: mean 1/4, squares about it 1.25, v_img = (1.25/3)/4 = 0.104;
    # v_int = (1/4 + 4 * 1/4) / 8 = 0.156, so V = v = 0.01 * (1/2 + 4/2).
    assert result.delta == pytest.approx(0.25)
    assert result.pooled.se == pytest.approx(math.sqrt(0.025))


def test_one_method_with_one_seed_is_still_tested_with_the_others_variance():
    result = contrast(A[:1], B, seed_variance=0.01, seed_df=4)
    assert result.decided_by == "seed-and-image"
    assert 0 < result.p < 1
    assert math.isnan(result.welch.p())


@pytest.mark.parametrize(
    ("a", "b", "variance", "df", "reason"),
    [
        (A[:1], B[:1], math.nan, 0, "none (one seed)"),
        (A[:, :1], B[:, :1], 0.01, 4, "none (one image)"),
    ],
)
def test_what_cannot_be_tested_is_nan_and_says_so(a, b, variance, df, reason):
    result = contrast(a, b, variance, df)
    assert result.decided_by == reason
    assert result.delta == a.mean() - b.mean()
    for value in (result.p, result.low, result.high, result.smallest_detectable):
        assert math.isnan(value)


def test_no_variance_at_all():
    ones, zeros = np.ones((3, 4)), np.zeros((3, 4))
    same, apart = contrast(ones, ones, 0.0, 4), contrast(ones, zeros, 0.0, 4)
    assert (same.p, same.low, same.high) == (1.0, 0.0, 0.0)
    assert (apart.p, apart.low, apart.high) == (0.0, 1.0, 1.0)
    assert same.smallest_detectable == 0.0


def test_no_seed_variance_leaves_a_normal_test_on_the_images():
    a, b = np.tile([1, 1, 1, 1.0], (2, 1)), np.tile([1, 0, 1, 0.0], (2, 1))
    result = contrast(a, b, 0.0, 4)
    assert result.pooled == TTest(0.5, math.sqrt(1 / 12), math.inf)
    assert result.p == pytest.approx(2 * stats.norm.sf(0.5 * math.sqrt(12)))


@pytest.mark.parametrize(("a", "b"), [(A, B[:, :3]), (A[0], B[0]), (A[:, :0], B[:, :0])])
def test_shapes_that_do_not_fit_are_refused(a, b):
    with pytest.raises(ValueError, match="images"):
        contrast(a, b, 0.01, 4)


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
    effect = smallest_detectable(0.3, df, power=0.8)
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


def test_sign_flip_is_the_share_of_sign_patterns_at_least_as_extreme():
    deltas = np.array([0.3, 1.2, -0.1, 0.8, 0.2])
    patterns = np.array(list(itertools.product([-1, 1], repeat=5)))
    extreme = np.abs((patterns * deltas).mean(axis=1)) >= abs(deltas.mean()) - 1e-12
    assert sign_flip(deltas) == pytest.approx(extreme.mean())
    assert sign_flip([1, 2, 3]) == pytest.approx(0.25)
    assert sign_flip([1.0]) == 1.0
    assert math.isnan(sign_flip([]))
    assert math.isnan(sign_flip([1.0, math.nan]))


def test_sign_flip_of_many_cells_is_sampled_and_repeatable():
    deltas = np.random.default_rng(1).normal(0.3, 1, 24)
    assert sign_flip(deltas) == sign_flip(deltas)
    assert sign_flip(deltas) == pytest.approx(stats.ttest_1samp(deltas, 0).pvalue, abs=0.02)


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


def test_prediction_interval_by_hand():
    # mean 2, sd 1, t(2) = 4.3027, sqrt(1 + 1/3) = 1.1547
    assert prediction_interval([1, 2, 3]) == pytest.approx((2 - 4.9683, 2 + 4.9683), abs=1e-4)
    assert np.isnan(prediction_interval([1.0])).all()


def test_sample_sd_divides_by_n_minus_one():
    assert sample_sd([1, 3]) == pytest.approx(math.sqrt(2))
    assert math.isnan(sample_sd([1]))


def _simulate(seed_sd, *, trials, images, per_image=0.0, seeds=3, methods=5):
    """p-values of the contrast and of McNemar between equal methods: [trials] each.

    Image i is classified right with a probability of its own, mean 0.93, that the seed moves
    for all images together (by `seed_sd` on average) and the method for each image apart.
    """
    draw = np.random.default_rng(2024)
    ours, mcnemar = [], []
    for _ in range(trials):
        chance = draw.beta(1.2, 0.09, images).astype(np.float32)
        uncertain = chance * (1 - chance)
        uncertain /= uncertain.mean()
        own = draw.standard_normal((methods, 1, images if per_image else 1), np.float32)
        level = np.clip(chance + per_image * own * np.sqrt(uncertain), 0, 1)
        luck = draw.normal(0, seed_sd, (methods, seeds, 1)).astype(np.float32)
        right = draw.random((methods, seeds, images), np.float32) < level + luck * uncertain
        variance, df = pooled_seed_variance(list(right.mean(axis=2)))
        ours.append(contrast(right[0], right[1], variance, df).p)
        mcnemar.append(mcnemar_exact(right[0, 0], right[1, 0]))
    return np.array(ours), np.array(mcnemar)


@pytest.mark.parametrize(("seed_sd", "mcnemar_rate"), [(0.002, 0.08), (0.006, 0.3)])
def test_false_positive_rate_is_near_five_percent(seed_sd, mcnemar_rate):
    ours, mcnemar = _simulate(seed_sd, trials=1000, images=4000)
    assert 0.03 <= (ours < 0.05).mean() <= 0.07
    # Why McNemar is never the verdict: it takes the luck of the seed for the method.
    assert (mcnemar < 0.05).mean() > mcnemar_rate


def test_false_positive_rate_where_methods_differ_image_by_image():
    ours, _ = _simulate(0.002, trials=1000, images=500, per_image=0.3)
    assert 0.03 <= (ours < 0.05).mean() <= 0.07
