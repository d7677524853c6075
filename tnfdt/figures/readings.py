"""A specification curve: the readings of the paper sorted by the difference behind a claim."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from tnfdt.figures.style import CLAIMED, WIDTH, empty, new_figure, style
from tnfdt.verdicts.multiverse import OWN, ReadingOutcome, by_contrast

_CURVE, _DOT, _ROOM = 1.6, 0.17, 0.75  # inches: a curve, a line of dots, titles and legend
_OWN: dict[str, Any] = {"marker": "s", "mfc": "#0072B2", "mec": "black", "ms": 5}
_OTHER = {**_OWN, "marker": "o", "mfc": "white"}


def specification_curve(claim: str, found: Sequence[ReadingOutcome]) -> Figure:
    """A curve per contrast of a claim, and below each which switch every reading changes."""
    groups = {label: g for (name, label), g in by_contrast(found).items() if name == claim}
    if not groups:
        return empty(f"{claim}: no results yet")
    values = list(dict.fromkeys(text for one in found for text in _changes(one)))
    below = _DOT * max(len(values), 1) + 0.1
    with style():
        figure = new_figure(WIDTH, len(groups) * (_CURVE + below + 0.2) + _ROOM)
        ratios = [_CURVE, below] * len(groups)
        axes = figure.subplots(2 * len(groups), 1, height_ratios=ratios, squeeze=False)[:, 0]
        for number, (label, group) in enumerate(groups.items()):
            ordered = sorted(group, key=lambda one: one.headline.estimate)
            _draw_curve(axes[2 * number], ordered, f"{claim} ({label})")
            _draw_dots(axes[2 * number + 1], ordered, values)
        _legend(figure)
    return figure


def _changes(one: ReadingOutcome) -> list[str]:
    """The switches of a reading, each as the title of a reading of its own has it."""
    return one.title.split(", ") if one.reading else []


def _draw_curve(axis: Axes, ordered: Sequence[ReadingOutcome], title: str) -> None:
    axis.set_title(title, loc="left")
    axis.axhline(0, color="#444444", lw=0.7)
    for place, one in enumerate(ordered):
        head = one.headline
        if math.isfinite(head.low):
            axis.plot([place, place], [head.low, head.high], color="black", lw=1.0)
        look = _OTHER if one.reading else _OWN
        axis.plot(place, head.estimate, zorder=3, **look)
    axis.set(xlim=(-0.5, len(ordered) - 0.5), ylabel="Δ (points)")
    own, limits = ordered[0], axis.get_ylim()
    axis.axhspan(own.threshold, limits[own.side > 0], color=CLAIMED, lw=0, zorder=0)
    axis.set_ylim(limits)
    axis.set_xticks([])


def _draw_dots(axis: Axes, ordered: Sequence[ReadingOutcome], values: Sequence[str]) -> None:
    for place, one in enumerate(ordered):
        if one.reading is None:
            axis.axvspan(place - 0.5, place + 0.5, color="#e5e5e5", lw=0)
        for text in _changes(one):
            axis.plot(place, values.index(text), marker="o", color="black", ms=4)
    axis.set(xlim=(-0.5, len(ordered) - 0.5), ylim=(len(values) - 0.5, -0.5))
    axis.set_xticks([])
    axis.set_yticks(range(len(values)), values, fontsize=7)


def _legend(figure: Figure) -> None:
    looks = {f"{OWN} reading": _OWN, "another, its switch dotted": _OTHER}
    marks = [Line2D([], [], ls="", label=text, **look) for text, look in looks.items()]
    bar = Line2D([], [], color="black", lw=1.0, label="95 % interval")
    side = Patch(color=CLAIMED, label="claimed side")
    figure.legend(handles=[*marks, bar, side], loc="outside lower center", ncols=4)
