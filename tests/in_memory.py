"""Results of a whole study drawn around given accuracies, without a file.

Unlike tests/synthetic.py, every number of the tables can be set: the paper's own, those of a
small study, or a floor. Images are shared by all cells of a dataset, as real ones are.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import optimize, special

from tests.synthetic import _random
from tnfdt.evidence.results import Attacked, Results
from tnfdt.study.paths import Cell
from tnfdt.study.study import Study

SHARED = 0.9  # correlation of how hard an image is for two networks
Number = Callable[[Cell, float | None], tuple[float, float]]  # mean and SD over seeds, in percent


def published_numbers(frame: pd.DataFrame, spread: float = 0.3) -> Number:
    """The paper's means and SDs; under attack, and in Table 2, the row's SD or `spread`."""
    table = frame.assign(epsilon=frame["epsilon"].fillna(0.0))
    keys = ["dataset", "model", "method", "epsilon"]
    found = {tuple(row[:4]): row[4:] for row in table[[*keys, "value", "sd"]].to_numpy()}

    def number(cell: Cell, epsilon: float | None) -> tuple[float, float]:
        value, _ = found[(*cell[:3], epsilon or 0.0)]
        sd = found[(*cell[:3], 0.0)][1]
        return float(value), spread if math.isnan(sd) else float(sd)

    return number


def results(
    study: Study,
    number: Number,
    *,
    images: int,
    attacked: int,
    luck: str = "",
    variants: bool = False,
) -> Results:
    """Every cell trained and attacked; `luck` names another draw of the seeds, and `variants`
    adds the cells of other readings."""
    trained, clean, attacks = {}, {}, {}
    for cell in [*study.cells, *(study.variants if variants else ())]:
        level, latent = _accuracy(number, cell, None, luck), _latent(cell, images)
        clean[cell] = (latent < level).astype(float)
        metrics = {"accuracy": float(clean[cell].mean()), "parameters": 1000}
        metrics |= {"images_per_second": 500.0 + cell.seed, "peak_memory_bytes": 10**9}
        trained[cell] = {"metrics": metrics, "hardware": {"cpu": "made up"}}
        for epsilon in study.attack.epsilons:
            aim = min(_accuracy(number, cell, epsilon, luck), level)
            curve = _curve(level, aim, study.attack.steps)
            right = latent[:attacked] < curve[:, None]
            attacks[cell, epsilon] = _attack(right, float(clean[cell][:attacked].mean()))
    return Results(
        study=study, folder=Path("results"), trained=trained, clean=clean, attacked=attacks,
        outdated=(),
    )  # fmt: skip


def _accuracy(number: Number, cell: Cell, epsilon: float | None, luck: str) -> float:
    """One seed's, as a fraction. Its luck is the same under every attack."""
    mean, sd = number(cell, epsilon)
    drawn = mean + sd * _random(cell, f"luck{luck}").normal()
    return float(np.clip(drawn / 100, 0.001, 0.999))


def _latent(cell: Cell, images: int) -> NDArray[np.float64]:
    """Uniform, so that a level is an accuracy; the images are the whole test set, no sample."""
    order = _random(Cell(cell.dataset, "", "", 0), "images").permutation(images)
    shared = special.ndtri((order + 0.5) / images)
    own = _random(cell, "own").standard_normal(images)
    mixed = math.sqrt(SHARED) * shared + math.sqrt(1 - SHARED) * own
    return np.asarray(special.ndtr(mixed))


def _curve(clean: float, robust: float, steps: int) -> NDArray[np.float64]:
    """Accuracy on each iterate, falling to a rest, with the mean of Eq. 7."""
    falls = np.arange(1, steps + 1)
    share = min(0.5 * robust / clean, np.exp(-falls / 6).mean())
    speed = optimize.brentq(lambda s: np.exp(-falls * s).mean() - share, 0.1, 50)
    decay = np.exp(-falls * speed)
    rest = (robust - clean * decay.mean()) / (1 - decay.mean())
    return np.asarray(rest + (clean - rest) * decay)


def _attack(right: NDArray[np.bool_], clean: float) -> Attacked:
    metrics = {
        "clean_accuracy": clean,
        "robust_accuracy": float(right.mean()),
        "last_accuracy": float(right[-1].mean()),
        "curve": [float(value) for value in right.mean(1)],
    }
    return Attacked(path=Path("x.json"), record={"metrics": metrics}, scores=right.mean(axis=0))
