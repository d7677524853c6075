"""Specification curves: the readings of the paper sorted by the difference behind a claim."""

from __future__ import annotations

import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tnfdt.figures.style import WIDTH, empty, new_figure, style
from tnfdt.verdicts.multiverse import Outcome, by_contrast

_CURVE, _DOT = 1.5, 0.16  # inches: a curve, and a line of dots


def specification_curves(found: Sequence[Outcome]) -> Figure:
    """A curve per contrast, with the changed switches as dots below it."""
    groups = by_contrast(found)
    if not groups:
        return empty("no claim has results in this study yet")
    titles = list(dict.fromkeys(text for one in found for text in _values(one)))
    below = max(_DOT * len(titles), _DOT)
    with style():
        figure = new_figure(WIDTH, len(groups) * (_CURVE + below + 0.3))
        ratios = [_CURVE, below] * len(groups)
        axes = figure.subplots(2 * len(groups), 1, height_ratios=ratios, squeeze=False)[:, 0]
        for number, ((claim, label), group) in enumerate(groups.items()):
            ordered = sorted(group, key=lambda one: one.headline.estimate)
            _draw_curve(axes[2 * number], ordered, f"{claim}: {label}")
            _draw_dots(axes[2 * number + 1], ordered, titles)
    return figure


def _values(one: Outcome) -> list[str]:
    changes = one.reading.changes if one.reading else ()
    return [f"{switch}: {str(value).lower()}" for switch, value in changes]


def _draw_curve(axis: Axes, ordered: Sequence[Outcome], title: str) -> None:
    axis.set_title(title, loc="left")
    axis.axhline(0, color="#444444", lw=0.7)
    for place, one in enumerate(ordered):
        head, own = one.headline, one.reading is None
        if math.isfinite(head.low):
            axis.plot([place, place], [head.low, head.high], color="black", lw=1.0)
        marker, face = ("s", "#0072B2") if own else ("o", "white")
        axis.plot(place, head.estimate, marker=marker, mfc=face, mec="black", ms=4.5)
    axis.set(xlim=(-0.5, len(ordered) - 0.5), ylabel="Δ (points)")
    axis.set_xticks([])


def _draw_dots(axis: Axes, ordered: Sequence[Outcome], titles: Sequence[str]) -> None:
    for place, one in enumerate(ordered):
        for text in _values(one):
            axis.plot(place, titles.index(text), marker="o", color="black", ms=3.2)
    axis.set(xlim=(-0.5, len(ordered) - 0.5), ylim=(len(titles) - 0.5, -0.5))
    axis.set_xticks([])
    axis.set_yticks(range(len(titles)), titles, fontsize=6)
