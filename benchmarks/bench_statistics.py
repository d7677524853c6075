"""Error rates of the row test and the headline, on data unlike their assumptions.

The generator is a probit model: image i is classified right where
    level + easy_i + method_i + luck_s + noise_si > 0
with normal effects of the image, of the method on this image, of the seed and of both. So the
noise of seeds and images is neither additive nor normal in accuracy, and least so near 0 and
100 %. The level is solved for, so that two methods have equal accuracy whatever their seeds'
scatter. `python -m benchmarks statistics` prints every setting with its Monte Carlo error.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from numpy.typing import NDArray
from scipy import special  # type: ignore[import-untyped]

from benchmarks.ratios import Row
from tnfdt.evidence.statistics import ALPHA, TTest, headline, row_test

RUNS = 2000
LOW, HIGH = 0.03, 0.07  # false positives that are accepted at a level of 5 %
ACCURACIES, RATIOS, IMAGES = (0.02, 0.5, 0.95), (1.0, 2.0, 4.0), (200, 1000, 10_000)
SEED_SDS = (0.02, 0.1)  # in the probit's unit: the images weigh more than the seeds, and less
EFFECT = 0.02  # of the settings whose coverage is of a true difference

Bools = NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Two methods: accuracy of the second, the first's minus it, and how their seeds scatter."""

    accuracy: float
    ratio: float  # SD of the first method's seeds over that of the second's
    images: int
    effect: float = 0.0
    seeds: int = 3
    seed_sd: float = 0.02  # of the second method, in the probit's unit
    image_sd: float = 1.5
    method_sd: float = 0.3


def draw(setting: Setting, generator: np.random.Generator) -> tuple[Bools, Bools]:
    """Right or wrong of both methods, [S, N] each, on the same images."""
    easy = generator.normal(0, setting.image_sd, setting.images)
    first = _network(setting, setting.accuracy + setting.effect, setting.ratio, easy, generator)
    second = _network(setting, setting.accuracy, 1.0, easy, generator)
    return first, second


def _network(
    setting: Setting,
    accuracy: float,
    ratio: float,
    easy: NDArray[np.float64],
    generator: np.random.Generator,
) -> Bools:
    seed_sd = ratio * setting.seed_sd
    spread = math.sqrt(1 + setting.image_sd**2 + setting.method_sd**2 + seed_sd**2)
    own = easy + generator.normal(0, setting.method_sd, setting.images)
    luck = generator.normal(0, seed_sd, (setting.seeds, 1))
    level = spread * float(special.ndtri(accuracy))
    noise = generator.standard_normal((setting.seeds, setting.images))
    return np.asarray(level + own + luck + noise > 0)


def rejected(setting: Setting, runs: int = RUNS, seed: int = 0) -> float:
    """How often the 95 % interval of the row test excludes the true difference."""
    generator = np.random.default_rng(seed)
    tests = (row_test(*draw(setting, generator)) for _ in range(runs))
    return _rate(tests, setting.effect)


def headline_rejected(settings: list[Setting], runs: int = RUNS, seed: int = 0) -> float:
    """The same of the mean over one row per setting."""
    generator = np.random.default_rng(seed)
    truth = sum(setting.effect for setting in settings) / len(settings)
    tests = (headline([row_test(*draw(s, generator)) for s in settings]) for _ in range(runs))
    return _rate(tests, truth)


def _rate(tests: Iterator[TTest], truth: float) -> float:
    return float(np.mean([test.p(truth) < ALPHA for test in tests]))


def monte_carlo(rate: float, runs: int = RUNS) -> float:
    """The standard error of a simulated rate."""
    return math.sqrt(max(rate * (1 - rate), 1 / runs) / runs)


def main() -> list[Row]:
    """False positives of every setting, coverage of a true difference, and the headline."""
    rows = [row for setting in _settings() for row in _rows(setting)]
    claim = [Setting(accuracy=a, ratio=r, images=1000) for a, r in product(ACCURACIES, (1.0, 2.0))]
    rate = headline_rejected(claim)
    return [*rows, *_judged("headline over six rows", rate, ratio=2.0)]


def _settings() -> Iterator[Setting]:
    for sd, accuracy, ratio, images in product(SEED_SDS, ACCURACIES, RATIOS, IMAGES):
        yield Setting(accuracy=accuracy, ratio=ratio, images=images, seed_sd=sd)


def _rows(setting: Setting) -> Iterator[Row]:
    name = (
        f"accuracy {setting.accuracy:.0%}, seed SD {setting.seed_sd:g}, "
        f"SD ratio {setting.ratio:g}, N = {setting.images:,}"
    )
    yield from _judged(f"false positives, {name}", rejected(setting), setting.ratio)
    shifted = replace(setting, effect=EFFECT)
    covered = 1 - rejected(shifted, seed=1)
    print(f"coverage, {name}: {covered:.1%} ± {monte_carlo(covered):.1%}", file=sys.stderr)


def _judged(name: str, rate: float, ratio: float) -> Iterator[Row]:
    """Targets hold where one SD is at most twice the other; beyond it the rate is reported."""
    text = f"{name}, % (± {100 * monte_carlo(rate):.1f})"
    bound = f"{100 * LOW:g} – {100 * HIGH:g}" if ratio <= 2 else "reported"
    yield Row(text, 100 * rate, bound, ratio > 2 or LOW <= rate <= HIGH)
