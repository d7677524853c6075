"""Bars of the audit: the accuracy that each attack leaves, by method."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from tnfdt.figures.style import WIDTH, empty, new_figure, style
from tnfdt.study.names import AUDIT_ATTACKS, dataset_name, epsilon_name, method_name, model_name

_HUES = (
    "#BBBBBB", "#777777", "#000000", "#0072B2", "#56B4E9", "#009E73", "#E69F00", "#CC79A7",
    "#F0E442", "#882255", "#D55E00",
)  # fmt: skip
_SHOWN = 2  # epsilons
_LETTERS = 40  # that fit side by side under a panel
_COLOURS = dict(zip(AUDIT_ATTACKS, _HUES, strict=True))


def audit_bars(frame: pd.DataFrame) -> Figure:
    """Bars of each attack by method: a row of panels per dataset and model.

    Of the epsilons, those with AutoAttack come before the largest; the largest is drawn first.
    """
    if frame.empty:
        return empty("audit: not run yet")
    shown = _epsilons(frame)[:_SHOWN]
    shown.sort(reverse=True)
    blocks = list(dict.fromkeys(zip(frame["dataset"], frame["model"], strict=True)))
    attacks = [name for name in AUDIT_ATTACKS if name in frame and frame[name].notna().any()]
    with style():
        figure = new_figure(WIDTH, 1.75 * len(blocks) + 0.6)
        axes = figure.subplots(len(blocks), len(shown), squeeze=False)
        for line, (dataset, model) in zip(axes, blocks, strict=True):
            chosen = frame[(frame["dataset"] == dataset) & (frame["model"] == model)]
            for axis, epsilon in zip(line, shown, strict=True):
                _draw_bars(axis, chosen[chosen["epsilon"] == epsilon], attacks)
                axis.set_title(
                    f"{dataset_name(dataset)}, {model_name(model)}, {epsilon_name(epsilon)}"
                )
            line[0].set_ylabel("accuracy (%)")
        handles = [Patch(color=_COLOURS[name], label=AUDIT_ATTACKS[name]) for name in attacks]
        figure.legend(handles=handles, loc="outside lower center", ncols=-(-len(handles) // 2))
    return figure


def _epsilons(frame: pd.DataFrame) -> list[float]:
    judged = frame["autoattack"].notna() if "autoattack" in frame else frame["epsilon"] < 0
    with_autoattack = {*frame.loc[judged, "epsilon"]}
    return sorted({*frame["epsilon"]}, key=lambda e: (e in with_autoattack, e), reverse=True)


def _draw_bars(axis: Axes, frame: pd.DataFrame, attacks: Sequence[str]) -> None:
    means = frame.groupby("method", sort=False)[[*attacks]].mean()
    width = 0.84 / len(attacks)
    for place, name in enumerate(attacks):
        at = np.arange(len(means)) + (place - (len(attacks) - 1) / 2) * width
        axis.bar(at, means[name], width, color=_COLOURS[name])
    names = [method_name(str(method)) for method in means.index]
    axis.set_xticks(range(len(means)), names)
    if sum(map(len, names)) > _LETTERS:
        axis.set_xticks(range(len(means)), names, rotation=30, ha="right", rotation_mode="anchor")
    axis.grid(axis="x", visible=False)
    axis.set_ylim(bottom=0)
