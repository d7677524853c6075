"""Figures of a study's numbers: accuracy over ε, over PGD's iterates and over the epochs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from tnfdt.evidence.results import Entry, Results
from tnfdt.evidence.statistics import FloatArray
from tnfdt.figures.style import (
    WIDTH,
    Block,
    MarkerStyle,
    empty,
    legend,
    marker_styles,
    new_figure,
    panels,
    style,
)
from tnfdt.study.names import dataset_name, epsilon_name, model_name
from tnfdt.study.paths import Cell

NOTHING = "not run yet"
_ROW = ["dataset", "model", "method"]
_OFFSET = 0.05  # between the methods of one ε: they hide each other less, and all stay at it


def blocks_of(results: Results) -> dict[Block, dict[str, list[Cell]]]:
    """The cells of each dataset and model by method, one per seed."""
    blocks: dict[Block, dict[str, list[Cell]]] = {}
    for cell in results.cells:
        rows = blocks.setdefault(cell[:2], {})
        rows.setdefault(cell.method, []).append(cell)
    return blocks


def styles_of(results: Results) -> dict[str, MarkerStyle]:
    return marker_styles(dict.fromkeys(cell.method for cell in results.cells))


def robust_accuracy(results: Results, published: pd.DataFrame) -> Figure:
    """Accuracy without attack and at each ε, mean ± SD of the seeds, beside the paper's."""
    epsilons = [None, *sorted(results.epsilons)]
    ticks = ["clean" if e is None else epsilon_name(e)[2:] for e in epsilons]
    blocks, styles = blocks_of(results), styles_of(results)
    with style():
        figure, axes = panels([*blocks], "accuracy (%)", height=2.3)
        for axis, (block, rows) in zip(axes, blocks.items(), strict=True):
            for place, (method, cells) in enumerate(rows.items()):
                shift = _OFFSET * (place - (len(rows) - 1) / 2)
                at = {epsilon: number + shift for number, epsilon in enumerate(epsilons)}
                entries = {x: results.entry(cells, epsilon) for epsilon, x in at.items()}
                _points(axis, entries, styles[method])
                chosen = published[(published[_ROW] == [*block, method]).all(axis=1)]
                _paper_points(axis, at, chosen, styles[method])
            axis.set_xticks(range(len(epsilons)), ticks)
            axis.set(xlabel="ε", ylim=(0, 102))
            axis.grid(axis="x", visible=False)
        paper = Line2D([], [], ls="", marker="o", mfc="white", color="#555555", label="paper")
        drawn = any(line.get_markerfacecolor() == "white" for a in axes for line in a.lines)
        legend(figure, styles, [paper] if drawn else [])
    return figure


def _points(axis: Axes, entries: Mapping[float, Entry], drawn: MarkerStyle) -> None:
    known = {x: entry for x, entry in entries.items() if entry.values}
    means = [entry.mean for entry in known.values()]
    spread = [entry.sd if len(entry.values) > 1 else 0.0 for entry in known.values()]
    axis.errorbar(
        [*known], means, spread, color=drawn[0], marker=drawn[1],
        lw=0.7, elinewidth=1.0, capsize=1.5, ms=4, zorder=3,
    )  # fmt: skip


def _paper_points(
    axis: Axes, at: Mapping[float | None, float], published: pd.DataFrame, drawn: MarkerStyle
) -> None:
    """A hollow marker at each published value of the row that has a place."""
    for epsilon, value in zip(published["epsilon"], published["value"], strict=True):
        x = at.get(None if pd.isna(epsilon) else float(epsilon))
        if x is not None:
            axis.plot([x], [value], ls="", marker=drawn[1], mfc="white", mec=drawn[0], mew=0.9)


def iterations(results: Results) -> Figure:
    """Accuracy on each PGD iterate, one row of panels per dataset and model, one ε each."""
    if not results.attacked:
        return empty(f"accuracy per PGD iterate: {NOTHING}")
    blocks, styles, epsilons = blocks_of(results), styles_of(results), results.epsilons
    with style():
        figure = new_figure(WIDTH, 1.45 * len(blocks) + 0.5)
        axes = figure.subplots(len(blocks), len(epsilons), squeeze=False, sharex=True)
        for line, ((dataset, model), rows) in zip(axes, blocks.items(), strict=True):
            line[0].set_ylabel(f"{dataset_name(dataset)}\n{model_name(model)}\naccuracy (%)")
            for axis, epsilon in zip(line, epsilons, strict=True):
                for method, cells in rows.items():
                    _band(axis, [results.curve(c, epsilon) for c in cells], styles[method])
        for axis, epsilon in zip(axes[0], epsilons, strict=True):
            axis.set_title(epsilon_name(epsilon))
        for axis in axes[-1]:
            axis.set_xlabel("PGD iterate")
        legend(figure, styles)
    return figure


def training_curves(results: Results) -> Figure:
    """Test accuracy per epoch, with a band from the lowest to the highest seed."""
    if not results.trained:
        return empty(f"training curves: {NOTHING}")
    blocks, styles = blocks_of(results), styles_of(results)
    with style():
        figure, axes = panels([*blocks], "test accuracy (%)", height=2.1)
        for axis, rows in zip(axes, blocks.values(), strict=True):
            for method, cells in rows.items():
                courses = [results.history(cell).get("test_accuracy") for cell in cells]
                curves = [None if course is None else np.array(course) for course in courses]
                _band(axis, curves, styles[method])
            axis.set_xlabel("epoch")
            axis.xaxis.set_major_locator(MaxNLocator(integer=True))
        legend(figure, styles)
    return figure


def _band(axis: Axes, curves: Sequence[FloatArray | None], drawn: MarkerStyle) -> None:
    """The mean of curves [T] in 0..1 in percent, and the range that they span."""
    found = [100 * curve for curve in curves if curve is not None]
    if not found:
        return
    length = min(map(len, found))
    lines = np.array([curve[:length] for curve in found])
    steps = np.arange(1, length + 1)
    mean, every = lines.mean(axis=0), (0.05, 0.2)  # shares of the axis, whatever its length
    axis.plot(steps, mean, color=drawn[0], marker=drawn[1], ms=3, markevery=every)
    axis.fill_between(steps, lines.min(axis=0), lines.max(axis=0), color=drawn[0], alpha=0.2, lw=0)
