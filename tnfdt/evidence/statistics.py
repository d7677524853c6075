"""Arrays in, numbers out: how sure one can be of a difference between two methods.

Two things are random in a table cell: the seed of the training and the images it was tested
on. McNemar's test knows only the images and takes any two trainings of the same method for
different; a test on the seeds alone cannot fall below p = 0.25 with three of them. `contrast`
therefore adds both variances, with the seed's pooled over all methods of the study.

Per-image scores are numbers in [0, 1]: right or wrong for clean images, the share of PGD
iterates classified right (Eq. 7) under attack. All results have the unit of their input.
Standard deviations and variances divide by n - 1. What cannot be known is nan, never 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special, stats  # type: ignore[import-untyped]

FloatArray = NDArray[np.float64]

ALPHA = 0.05
POWER = 0.8
SD_RATIO = 2.0  # seed SDs further apart than this are not pooled
EXACT_FLIPS = 16  # up to 2**16 sign patterns are enumerated, beyond that they are sampled
ROUNDING = 1e-20  # below any variance that scores of 1e6 images can have


@dataclass(frozen=True)
class TTest:
    """An estimate, its standard error and the degrees of freedom of that standard error."""

    estimate: float
    se: float
    df: float

    def p(self, null: float = 0.0) -> float:
        """Two-sided p-value of the hypothesis that the true value is `null`."""
        if self.se == 0:
            return 1.0 if self.estimate == null else 0.0
        return float(2 * stats.t.sf(abs(self.estimate - null) / self.se, self.df))

    def interval(self, level: float = 1 - ALPHA) -> tuple[float, float]:
        """The values that a two-sided test at 1 - `level` does not reject."""
        half = self.se * float(stats.t.ppf((1 + level) / 2, self.df))
        return self.estimate - half, self.estimate + half


@dataclass(frozen=True, kw_only=True)
class Contrast:
    """The difference A - ratio * B by both tests, and which of them decides.

    `decided_by` is "seed-and-image", "welch", "none (one seed)" or "none (one image)"; p,
    low, high and smallest_detectable are those of the deciding test, nan if there is none.
    """

    delta: float
    pooled: TTest
    welch: TTest
    decided_by: str

    @property
    def test(self) -> TTest:
        return self.welch if self.decided_by == "welch" else self.pooled

    @property
    def p(self) -> float:
        return self.test.p()

    @property
    def low(self) -> float:
        return self.test.interval()[0]

    @property
    def high(self) -> float:
        return self.test.interval()[1]

    @property
    def smallest_detectable(self) -> float:
        return smallest_detectable(self.test.se, self.test.df)


def contrast(
    a: ArrayLike, b: ArrayLike, seed_variance: float, seed_df: int, *, ratio: float = 1.0
) -> Contrast:
    """Compare two methods on the same images: mean(a) - ratio * mean(b).

    a: [S_a, N], b: [S_b, N] scores, one row per seed, in the same order of images.
    seed_variance, seed_df: of one seed's mean score, from `pooled_seed_variance`.

    With d_i the seed-averaged difference on image i (S_a = S_b = S and ratio 1 for short):
        v     = 2 * seed_variance / S                   the seeds
        v_img = var(d_i) / N                            the images
        v_int = mean_i(var_s a_si + var_s b_si) / (S * N)   counted by both
        V     = max(v + v_img - v_int, v),  df = V^2 / (v^2 / seed_df)

    Welch's form takes v from the two methods alone, var_s(mean_i a)/S + var_s(mean_i b)/S,
    with Satterthwaite's df, and decides if their seed SDs differ more than twofold. It keeps
    the images' part. In simulations of equal methods (three seeds, five methods, 4,000 runs)
    this rejects 4-5 % of the time; a Welch test on the seeds' means alone rejects 10-15 %
    where methods differ image by image. If one seed SD is four times the other, pooling
    rejects 19 %, the choice between the two tests 8 %: three seeds do not show it reliably.
    """
    a, b = _scores(a), _scores(b)
    if a.shape[1] != b.shape[1]:
        raise ValueError(f"scores of {a.shape[1]} and {b.shape[1]} images cannot be compared")
    delta = float((a.mean(axis=0) - ratio * b.mean(axis=0)).mean())
    image_part = _image_variance(a, b, ratio)
    weight = 1 / len(a) + ratio**2 / len(b)
    own = [(_variance(a.mean(axis=1)), len(a), 1.0), (_variance(b.mean(axis=1)), len(b), ratio)]
    return Contrast(
        delta=delta,
        pooled=_t_test(delta, [(seed_variance * weight, seed_df)], image_part),
        welch=_t_test(delta, [(w**2 * s2 / n, n - 1) for s2, n, w in own], image_part),
        decided_by=_decided_by(own[0][0], own[1][0], seed_df, a.shape[1]),
    )


def _scores(values: ArrayLike) -> FloatArray:
    scores = np.asarray(values, dtype=np.float64)
    if scores.ndim != 2 or scores.size == 0:
        raise ValueError(f"scores must be [seeds, images] and not empty, got {scores.shape}")
    return scores


def _variance(values: FloatArray) -> float:
    """Sample variance of [S] values, nan if S is 1, exactly 0 if they differ by rounding."""
    if len(values) < 2:
        return math.nan
    variance = float(np.var(values, ddof=1))
    return variance if variance > ROUNDING else 0.0


def _image_variance(a: FloatArray, b: FloatArray, ratio: float) -> float:
    """v_img - v_int, at least 0; a method with one seed adds nothing to v_int: V is then larger."""
    images: int = a.shape[1]
    if images < 2:
        return math.nan
    v_img = _variance(a.mean(axis=0) - ratio * b.mean(axis=0)) / images
    v_int = _interaction(a) + ratio**2 * _interaction(b)
    return max(v_img - v_int, 0.0)


def _interaction(scores: FloatArray) -> float:
    seeds, images = scores.shape
    return float(scores.var(axis=0, ddof=1).mean()) / (seeds * images) if seeds > 1 else 0.0


def _t_test(delta: float, seeds: list[tuple[float, int]], image_part: float) -> TTest:
    """Add variances of the estimate; only the (variance, df) of seeds cost degrees of freedom."""
    if any(df < 1 for _, df in seeds):
        return TTest(delta, math.nan, math.nan)
    total = sum(v for v, _ in seeds) + image_part
    uncertainty = sum(v**2 / df for v, df in seeds)
    df = total**2 / uncertainty if uncertainty > 0 else math.inf
    return TTest(delta, math.sqrt(total), df if math.isfinite(total) else math.nan)


def _decided_by(variance_a: float, variance_b: float, seed_df: int, images: int) -> str:
    if seed_df < 1:
        return "none (one seed)"
    if images < 2:
        return "none (one image)"
    low, high = sorted((variance_a, variance_b))
    # A comparison with nan (a method with one seed) is false: then only pooling is possible.
    return "welch" if high > SD_RATIO**2 * low else "seed-and-image"


def pooled_seed_variance(groups: Sequence[ArrayLike]) -> tuple[float, int]:
    """Variance of one seed's accuracy within methods, and its degrees of freedom.

    groups: one [S_k] array of accuracies per method. Methods with one seed add nothing; if
    all have one, the result is (nan, 0).
    """
    arrays = [np.asarray(group, dtype=np.float64) for group in groups]
    degrees = sum(max(len(array) - 1, 0) for array in arrays)
    if degrees == 0:
        return math.nan, 0
    squares = sum((len(array) - 1) * _variance(array) for array in arrays if len(array) > 1)
    return squares / degrees, degrees


def smallest_detectable(se: float, df: float, power: float = POWER, alpha: float = ALPHA) -> float:
    """The true difference that a two-sided t-test at `alpha` finds with probability `power`.

    It is se times the noncentrality at which noncentral t exceeds the critical value with
    that probability; the far tail, below 1e-4 of it, is left out.
    """
    if not (df > 0 and se >= 0):
        return math.nan
    critical = stats.t.ppf(1 - alpha / 2, df)
    return float(se * special.nctdtrinc(df, 1 - power, critical))


def mcnemar_exact(a: ArrayLike, b: ArrayLike) -> float:
    """McNemar's exact p for two networks, a: [N] and b: [N], on the same images.

    It describes these two networks only: between two seeds of one method it is "significant"
    far more often than in 5 % of cases. For scores between 0 and 1 it is the sign test on the
    images where the two differ, which for right and wrong is McNemar's.
    """
    a, b = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    wins, losses = int((a > b).sum()), int((a < b).sum())
    return min(1.0, 2 * float(special.bdtr(min(wins, losses), wins + losses, 0.5)))


def sign_flip(deltas: ArrayLike) -> float:
    """Two-sided sign-flip permutation p of the mean of deltas: [C], one per table cell.

    Exact up to 16 cells. A statement on these datasets and models, not on others.
    """
    values = np.asarray(deltas, dtype=np.float64)
    if values.size == 0 or not np.isfinite(values).all():
        return math.nan
    if values.size == 1:
        return 1.0
    result = stats.permutation_test(
        (values,),
        lambda sample, axis: sample.mean(axis=axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=2 ** min(values.size, EXACT_FLIPS),
        rng=np.random.default_rng(0),
    )
    return float(result.pvalue)


def holm(p: ArrayLike) -> FloatArray:
    """Holm's adjusted p-values of p: [M], which bound the chance of any false rejection.

    nan stands for a hypothesis that is not tested yet: it counts in M and stays nan, so that
    a verdict on a partial grid does not fall only because the grid was completed.
    """
    values = np.asarray(p, dtype=np.float64)
    order = np.argsort(values)  # nan last
    steps = (values.size - np.arange(values.size)) * values[order]
    adjusted = np.empty_like(values)
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return adjusted


def benjamini_hochberg(p: ArrayLike) -> FloatArray:
    """Adjusted p-values of p: [M], which bound the share of false rejections; nan stays nan."""
    values = np.asarray(p, dtype=np.float64)
    adjusted = np.full_like(values, math.nan)
    known = np.isfinite(values)
    if known.any():
        adjusted[known] = stats.false_discovery_control(values[known], method="bh")
    return adjusted


def sample_sd(values: ArrayLike) -> float:
    """Standard deviation of values: [S], nan if S is 1."""
    return math.sqrt(_variance(np.asarray(values, dtype=np.float64)))


def prediction_interval(values: ArrayLike, level: float = 1 - ALPHA) -> tuple[float, float]:
    """Where one more seed is expected, given values: [S]: mean +- t * sd * sqrt(1 + 1/S).

    A published number is one such draw. nan, nan if S is 1.
    """
    array = np.asarray(values, dtype=np.float64)
    spread = sample_sd(array) * math.sqrt(1 + 1 / len(array))
    return TTest(float(array.mean()), spread, len(array) - 1).interval(level)
