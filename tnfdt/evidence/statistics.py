"""Arrays in, numbers out: how sure one can be of a difference between two methods.

Two things are random in a table cell: the seed of the training and the images it was tested
on. McNemar's test knows only the images and takes any two trainings of the same method for
different; a test on the seeds' means alone misses that the images are a sample. `row_test`
adds both variances; `headline` averages the rows of a claim.

Per-image scores are numbers in [0, 1]: right or wrong for clean images, the share of PGD
iterates classified right (Eq. 7) under attack. All results have the unit of their input.
Standard deviations and variances divide by n - 1. What cannot be known is nan, never 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special, stats  # type: ignore[import-untyped]

FloatArray = NDArray[np.float64]

ALPHA = 0.05
POWER = 0.8
PAPER_RUNS = 3  # "All results are the average over three runs" (Table 1)
ROUNDING = 1e-20  # below any variance that scores of 1e6 images can have


@dataclass(frozen=True)
class TTest:
    """An estimate, its standard error and the degrees of freedom of that standard error."""

    estimate: float
    se: float
    df: float

    def p(self, threshold: float = 0.0) -> float:
        """Two-sided p-value of the hypothesis that the true value is `threshold`."""
        if self.se == 0:
            return 1.0 if self.estimate == threshold else 0.0
        return float(2 * stats.t.sf(abs(self.estimate - threshold) / self.se, self.df))

    def interval(self, level: float = 1 - ALPHA) -> tuple[float, float]:
        """The values that a two-sided test at 1 - `level` does not reject."""
        half = self.se * float(stats.t.ppf((1 + level) / 2, self.df))
        return self.estimate - half, self.estimate + half

    def numbers(self) -> dict[str, Any]:
        """The estimate, its SE, df and 95 % interval, by the names they have in all results."""
        low, high = self.interval()
        return {**vars(self), "low": low, "high": high}

    def scaled(self, factor: float) -> TTest:
        """The same test in another unit, such as points for fractions."""
        return TTest(factor * self.estimate, factor * self.se, self.df)


def row_test(a: ArrayLike, b: ArrayLike, ratio: float = 1.0) -> TTest:
    """Compare two methods on the same images: mean(a) - ratio * mean(b).

    a: [S_a, N], b: [S_b, N] scores, one row per seed, in the same order of images. With d_i
    the seed-averaged difference on image i (S_a = S_b = S and ratio 1 for short):
        v     = var_s(mean_i a) / S + var_s(mean_i b) / S   the seeds, each method its own
        v_img = var(d_i) / N                                the images
        v_int = mean_i(var_s a_si + var_s b_si) / (S * N)   counted by both
        V     = v + max(v_img - v_int, 0)
    with Satterthwaite's degrees of freedom, which only the seeds' variances cost. One seed or
    one image: se and df are nan. Three seeds of equal methods are called different in 3.2 to 5 %
    of cases where one SD is at most twice the other, in 3.4 to 7.5 % where it is four times
    (benchmarks/bench_statistics.py, 2,000 runs a setting).
    """
    a, b = _scores(a), _scores(b)
    if a.shape[1] != b.shape[1]:
        raise ValueError(f"scores of {a.shape[1]} and {b.shape[1]} images cannot be compared")
    per_image = a.mean(axis=0) - ratio * b.mean(axis=0)
    seeds = [(_seed_variance(a), len(a) - 1), (ratio**2 * _seed_variance(b), len(b) - 1)]
    counted = _interaction(a) + ratio**2 * _interaction(b)
    return summed(float(per_image.mean()), seeds, _image_part(per_image, counted))


def level_test(a: ArrayLike) -> TTest:
    """The accuracy of one method, a: [S, N], with the variances of its seeds and its images."""
    a = _scores(a)
    level = a.mean(axis=0)
    images = _image_part(level, _interaction(a))
    return summed(float(level.mean()), [(_seed_variance(a), len(a) - 1)], images)


def paired_change(after: ArrayLike, before: ArrayLike) -> TTest:
    """How far something moves on the same seeds and images: mean(after) - mean(before).

    after, before: [S, N], the same seeds in the same order, on the same images; accuracies, or
    differences of two. What a seed or an image does to both sides cancels before the variances
    are taken, as `level_test` takes them: the seeds' change with S - 1 degrees of freedom, and
    the images'. Nothing moves: exactly 0, with no error.
    """
    after, before = _scores(after), _scores(before)
    if after.shape != before.shape:
        raise ValueError(f"scores {after.shape} and {before.shape} cannot be paired")
    return level_test(after - before)


def difference(a: TTest, b: TTest) -> TTest:
    """a - b of two estimates that share neither seeds nor images."""
    return summed(a.estimate - b.estimate, [(a.se**2, a.df), (b.se**2, b.df)])


def welch(a: tuple[float, float, int], b: tuple[float, float, int]) -> TTest:
    """Welch's t from (mean, SD, runs) of two methods, for numbers that came without images."""
    (mean_a, sd_a, n_a), (mean_b, sd_b, n_b) = a, b
    return summed(mean_a - mean_b, [(sd_a**2 / n_a, n_a - 1), (sd_b**2 / n_b, n_b - 1)])


def headline(tests: Sequence[TTest]) -> TTest:
    """The mean over rows that share neither seeds nor images: SE sqrt(sum V) / D."""
    if not tests:
        return TTest(math.nan, math.nan, math.nan)
    parts = [(test.se**2, test.df) for test in tests]
    return summed(sum(test.estimate for test in tests), parts).scaled(1 / len(tests))


def headline_shared(tests: Sequence[TTest]) -> TTest:
    """The mean over rows on the same images: the largest SE and smallest df it can have."""
    if not tests:
        return TTest(math.nan, math.nan, math.nan)
    mean = float(np.mean([test.estimate for test in tests]))
    return TTest(mean, float(np.mean([test.se for test in tests])), min(test.df for test in tests))


def summed(estimate: float, parts: Sequence[tuple[float, float]], image_part: float = 0.0) -> TTest:
    """An estimate whose variance is the sum of independent ones, each with its df.

    The images' part costs no df: Satterthwaite's are of the others.
    """
    total = sum(variance for variance, _ in parts) + image_part
    if math.isnan(total) or any(df <= 0 for _, df in parts):
        return TTest(estimate, math.nan, math.nan)
    uncertainty = sum(variance**2 / df for variance, df in parts)
    return TTest(estimate, math.sqrt(total), total**2 / uncertainty if uncertainty else math.inf)


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


def _seed_variance(scores: FloatArray) -> float:
    """Of the mean over the seeds."""
    return _variance(scores.mean(axis=1)) / len(scores)


def _image_part(per_image: FloatArray, counted: float) -> float:
    """v_img - v_int of [N] seed-averaged values, at least 0; nan for one image."""
    variance = _variance(per_image) / len(per_image)
    return math.nan if math.isnan(variance) else max(variance - counted, 0.0)


def _interaction(scores: FloatArray) -> float:
    seeds, images = scores.shape
    return float(scores.var(axis=0, ddof=1).mean()) / (seeds * images) if seeds > 1 else math.nan


def tost(test: TTest, margin: float) -> float:
    """p of two one-sided tests: small if the true value lies within -margin .. margin."""
    if test.se == 0:
        return 0.0 if abs(test.estimate) < margin else 1.0
    return float(stats.t.sf((margin - abs(test.estimate)) / test.se, test.df))


def equivalence(test: TTest, margin: float) -> str:
    """agrees (TOST), differs (the interval excludes 0), cannot tell; "" if nothing is known.

    A difference that is significant and surely within the margin agrees.
    """
    p = test.p()
    if math.isnan(p):
        return ""
    if tost(test, margin) < ALPHA:
        return "agrees"
    return "differs" if p < ALPHA else "cannot tell"


def published_se(
    values: ArrayLike,
    *,
    sd: float = math.nan,
    runs: int = PAPER_RUNS,
    pooled: tuple[float, int] = (math.nan, 0),
) -> tuple[float, float]:
    """SE and df of mean(values) minus a published mean of `runs` runs. values: [S], one a seed.

    With the paper's `sd` Welch's, sqrt(sd^2 / runs + s^2 / S). Without it both are taken to
    scatter alike: s * sqrt(1 / runs + 1 / S), with (s^2, df) `pooled` over the methods of the
    block (`pooled_seed_variance`). Table 2 does not say its runs: ask for 3 and for 1.
    """
    array = np.asarray(values, dtype=np.float64)
    if math.isfinite(sd):
        own = _variance(array) / len(array)
        test = summed(0.0, [(sd**2 / runs, runs - 1), (own, len(array) - 1)])
        return test.se, test.df
    variance, df = pooled
    return (math.sqrt(variance * (1 / runs + 1 / len(array))), df) if df else (math.nan, math.nan)


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


def smallest_detectable(se: float, df: float, alpha: float = ALPHA) -> float:
    """The true difference that a two-sided t-test at `alpha` finds with probability POWER.

    It is se times the noncentrality at which noncentral t exceeds the critical value with
    that probability; the far tail, below 1e-4 of it, is left out.
    """
    if not (df > 0 and se >= 0):
        return math.nan
    critical = stats.t.ppf(1 - alpha / 2, df)
    return float(se * special.nctdtrinc(df, 1 - POWER, critical))


def mcnemar_exact(a: ArrayLike, b: ArrayLike) -> float:
    """McNemar's exact p for two networks, a: [N] and b: [N], on the same images.

    It describes these two networks only: between two seeds of one method it is "significant"
    far more often than in 5 % of cases. For scores between 0 and 1 it is the sign test on the
    images where the two differ, which for right and wrong is McNemar's.
    """
    a, b = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    wins, losses = int((a > b).sum()), int((a < b).sum())
    return min(1.0, 2 * float(special.bdtr(min(wins, losses), wins + losses, 0.5)))


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
