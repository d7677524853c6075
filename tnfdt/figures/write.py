"""Writes the figures of a study: which there are, what they need, where they go."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from tnfdt.evidence.results import Results
from tnfdt.figures import curves as figures
from tnfdt.figures.forest import forest
from tnfdt.figures.style import empty, save
from tnfdt.study.products import PICTURES, figure_names, pictured_dataset, watched_cell
from tnfdt.verdicts.judge import Verdict
from tnfdt.verdicts.looks import level

BLENDED = (1, 2, 3, 5)  # images in the rows of the blend figure, as far as there are classes
WATCHED = 32  # images whose activations are shown


def write(
    results: Results,
    published: pd.DataFrame,
    verdicts: Sequence[Verdict],
    *,
    pictures: bool = True,
) -> list[Path]:
    """Draw and save every figure of the study, as PNG and PDF.

    Without `pictures`, those that need images or a network are left out.
    """
    makers: dict[str, Callable[[], Figure]] = {
        "robust_accuracy": lambda: figures.robust_accuracy(results, published),
        "iterations": lambda: figures.iterations(results),
        "training_curves": lambda: figures.training_curves(results),
        "forest": lambda: forest(verdicts, level(results.study.looks)),
        "blend": lambda: _blend(results),
        "activations": lambda: _activations(results),
    }
    folder = results.paths.figures
    names = [n for n in figure_names(results.study) if pictures or n not in PICTURES]
    return [path for name in names for path in save(makers[name](), folder / name)]


def _blend(results: Results) -> Figure:
    dataset = pictured_dataset(results.study)
    if not results.paths.manifest(dataset).is_file():
        return empty(f"the blend figure needs the prepared images of {dataset}")
    from tnfdt.core import seeding
    from tnfdt.data.prepared import load
    from tnfdt.figures import pictures

    data, generator = load(results.paths.data(dataset)), seeding.generator(0, "figures/blend")
    images = (data.train_x, data.train_y, data.num_classes)
    amounts = [amount for amount in BLENDED if amount <= data.num_classes]
    return pictures.blends([pictures.draw_sample(*images, n, generator) for n in amounts])


def _activations(results: Results) -> Figure:
    cell = watched_cell(results.study)
    assert cell is not None  # else this figure is not in the study's list
    paths = results.paths
    needed = [paths.weights(cell), paths.manifest(cell.dataset)]
    if cell not in results.trained or not all(path.is_file() for path in needed):
        return empty(f"the activations need {cell.path} trained and its images prepared")
    from tnfdt.attack import cell as attack_cell
    from tnfdt.data.prepared import load
    from tnfdt.figures import pictures

    images = load(paths.data(cell.dataset)).test_x[:WATCHED]
    model, _ = attack_cell.load_model(paths.train(cell))
    layers = pictures.watch_layers(model, images.float() / 255)
    return pictures.activations(layers, pictures.picture(images[0]))
