"""Figures of a study's numbers: accuracy over ε, over PGD's iterates and over the epochs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from tnfdt.evidence.results import FloatArray, Results
from tnfdt.figures.style import WIDTH, Block, empty, legend, looks, new_figure, panels, style
from tnfdt.study.names import dataset_name, epsilon_name, model_name
from tnfdt.study.paths import Cell

NOTHING = "not run yet"
_OFFSET = 0.05  # between the methods of one ε: they hide each other less, and all stay at it


def blocks_of(results: Results) -> list[Block]:
    return list(dict.fromkeys((cell.dataset, cell.model) for cell in results.cells))


def rows_of(results: Results, block: Block) -> dict[str, list[Cell]]:
    """The cells of each method of a dataset and model, one per seed."""
    rows: dict[str, list[Cell]] = {}
    for cell in results.cells:
        if (cell.dataset, cell.model) == block:
            rows.setdefault(cell.method, []).append(cell)
    return rows


def all_methods(results: Results) -> list[str]:
    return list(dict.fromkeys(cell.method for cell in results.cells))


def robust_accuracy(results: Results, published: pd.DataFrame) -> Figure:
    """Accuracy without attack and at each ε, mean ± SD of the seeds, beside the paper's."""
    epsilons = (None, *sorted(results.epsilons))
    styles = looks(all_methods(results))

    def draw(axis: Axes, block: Block) -> None:
        rows = rows_of(results, block)
        for place, (method, cells) in enumerate(rows.items()):
            shift = _OFFSET * (place - (len(rows) - 1) / 2)
            _points(axis, results, cells, epsilons, shift, styles[method])
            _paper_points(axis, published, (*block, method), epsilons, shift, styles[method])
        ticks = ["clean" if e is None else epsilon_name(e)[2:] for e in epsilons]
        axis.set_xticks(range(len(epsilons)), ticks)
        axis.set(xlabel="ε", ylim=(0, 102))
        axis.grid(axis="x", visible=False)

    with style():
        figure = panels(blocks_of(results), draw, height=2.3)
        _label_left(figure, "accuracy (%)")
        paper = Line2D([], [], ls="", marker="o", mfc="white", color="#555555", label="paper")
        drawn = any(line.get_markerfacecolor() == "white" for a in figure.axes for line in a.lines)
        legend(figure, all_methods(results), [paper] if drawn else [])
    return figure


def _points(
    axis: Axes,
    results: Results,
    cells: Sequence[Cell],
    epsilons: Sequence[float | None],
    shift: float,
    look: tuple[str, str],
) -> None:
    found = [[results.accuracy(cell, epsilon) for cell in cells] for epsilon in epsilons]
    values = [np.array([100 * v for v in line if v is not None]) for line in found]
    at = [i for i, line in enumerate(values) if len(line)]
    means = [values[i].mean() for i in at]
    spread = [values[i].std(ddof=1) if len(values[i]) > 1 else 0.0 for i in at]
    axis.errorbar(
        [i + shift for i in at], means, spread, color=look[0], marker=look[1],
        lw=0.7, elinewidth=1.0, capsize=1.5, ms=4, zorder=3,
    )  # fmt: skip


def _paper_points(
    axis: Axes,
    published: pd.DataFrame,
    row: tuple[str, str, str],
    epsilons: Sequence[float | None],
    shift: float,
    look: tuple[str, str],
) -> None:
    """A hollow marker at each published value of the same dataset, model and method."""
    chosen = published[(published[["dataset", "model", "method"]] == list(row)).all(axis=1)]
    for epsilon, value in zip(chosen["epsilon"], chosen["value"], strict=True):
        key = None if pd.isna(epsilon) else float(epsilon)
        if key in epsilons:
            x = epsilons.index(key) + shift
            axis.plot([x], [value], ls="", marker=look[1], mfc="white", mec=look[0], mew=0.9)


def iterations(results: Results) -> Figure:
    """Accuracy on each PGD iterate, one row of panels per dataset and model, one ε each."""
    blocks, styles = blocks_of(results), looks(all_methods(results))
    epsilons = results.epsilons
    if not results.attacked:
        return empty(f"accuracy per PGD iterate: {NOTHING}")
    with style():
        figure = new_figure(WIDTH, 1.45 * len(blocks) + 0.5)
        axes = figure.subplots(len(blocks), len(epsilons), squeeze=False, sharex=True)
        for line, block in zip(axes, blocks, strict=True):
            line[0].set_ylabel(f"{dataset_name(block[0])}\n{model_name(block[1])}\naccuracy (%)")
            for axis, epsilon in zip(line, epsilons, strict=True):
                for method, cells in rows_of(results, block).items():
                    _band(axis, [results.curve(c, epsilon) for c in cells], styles[method])
        for axis, epsilon in zip(axes[0], epsilons, strict=True):
            axis.set_title(epsilon_name(epsilon))
        for axis in axes[-1]:
            axis.set_xlabel("PGD iterate")
        legend(figure, all_methods(results))
    return figure


def training_curves(results: Results) -> Figure:
    """Test accuracy per epoch, with a band from the lowest to the highest seed."""
    styles = looks(all_methods(results))
    if not results.trained:
        return empty(f"training curves: {NOTHING}")

    def draw(axis: Axes, block: Block) -> None:
        for method, cells in rows_of(results, block).items():
            histories = [results.history(cell) for cell in cells]
            curves = [None if h is None else h["test_accuracy"].to_numpy() for h in histories]
            _band(axis, curves, styles[method])
        axis.set_xlabel("epoch")
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))

    with style():
        figure = panels(blocks_of(results), draw, height=2.1)
        _label_left(figure, "test accuracy (%)")
        legend(figure, all_methods(results))
    return figure


def _band(axis: Axes, curves: Sequence[FloatArray | None], look: tuple[str, str]) -> None:
    """The mean of curves [T] in 0..1 in percent, and the range that they span."""
    found = [100 * curve for curve in curves if curve is not None]
    if not found:
        return
    length = min(map(len, found))
    lines = np.array([curve[:length] for curve in found])
    steps = np.arange(1, length + 1)
    mean, every = lines.mean(axis=0), (0.05, 0.2)  # shares of the axis, whatever its length
    axis.plot(steps, mean, color=look[0], marker=look[1], ms=3, markevery=every)
    axis.fill_between(steps, lines.min(axis=0), lines.max(axis=0), color=look[0], alpha=0.2, lw=0)


def _label_left(figure: Figure, text: str) -> None:
    for axis in figure.axes:
        spec = axis.get_subplotspec()
        if spec is not None and spec.is_first_col():
            axis.set_ylabel(text)
