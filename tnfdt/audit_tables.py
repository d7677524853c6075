"""The audit as tables and bars: the paper's number, each attack's number, and the badge.

Pure: the frame of `tnfdt.audit.audit_table` in, grids and figures out. Numbers are percentages.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from tnfdt.layout import MISSING, Grid, Item, Number, fixed
from tnfdt.names import dataset_name, epsilon_name, method_name, model_name, row_name
from tnfdt.plotting import WIDTH, empty, new_figure, style

# Columns of the frame: means over all iterates (Eq. 7), then images right on every iterate.
MEANS = {"clean": "Clean", "paper_eq7": "Paper, Eq. 7", "exact_eq7": "Exact, Eq. 7"}
ATTACKS = {
    "paper": "Paper",
    "exact": "Exact",
    "restarts": "Restarts",
    "steps_x2": "2× steps",
    "transfer": "Transfer",
    "noise": "Noise",
    "black_box": "Black box",
    "worst_case": "Worst case",
}
BADGES = {
    "loss still moving": "L",
    "adversarial lost": "A",
    "zero gradients": "Z",
    "gradient misleads": "G",
    "gradient free wins": "F",
    "stronger attack": "S",
    "accuracy not falling": "N",
    "chance not reached": "C",
}
SOUND = "sound"
_COLOURS = dict(
    zip(
        ATTACKS,
        ("#000000", "#0072B2", "#56B4E9", "#009E73", "#E69F00", "#CC79A7", "#999999", "#D55E00"),
        strict=True,
    )
)
_ROW = ["dataset", "model", "method"]


def audit_grid(frame: pd.DataFrame, epsilon: float, missing: int = 0, black_box: int = 0) -> Grid:
    """One row per dataset, model and method: means over the audited seeds at one epsilon.

    `missing` is how many cells are still to be audited, `black_box` how many images of each that
    attack is run on.
    """
    chosen = frame[frame["epsilon"] == epsilon]
    columns = _present(chosen)
    rows: list[list[Item]] = []
    groups: list[tuple[str, str]] = []
    for key, lines in chosen.groupby(_ROW, sort=False):
        dataset, model, method = map(str, key)
        numbers = [Number(value=fixed(_mean(lines[name]))) for name in columns]
        rows.append([dataset_name(dataset), row_name(model, method), *numbers, _codes(lines)])
        groups.append((dataset, model))
    seeds, images = chosen["seed"].nunique(), int(chosen["images"].max()) if len(chosen) else 0
    return Grid(
        label=f"audit_{epsilon:g}",
        caption=[_caption(epsilon, seeds, images, black_box)],
        header=("Dataset", "Model", *columns.values(), "Badge"),
        rows=rows or [[MISSING, "not run yet", *[MISSING] * (len(columns) + 1)]],
        blocks=[groups.count(group) for group in dict.fromkeys(groups)] or [1],
        notes=[_legend(), *([f"{MISSING} not run yet: {missing} cells."] if missing else [])],
    )


def _present(frame: pd.DataFrame) -> dict[str, str]:
    """The columns that have a number; black-box attacks, for example, are run for few images."""
    return {
        name: title
        for name, title in (MEANS | ATTACKS).items()
        if name in frame and frame[name].notna().any()
    }


def _mean(values: pd.Series) -> float | None:
    known = values.dropna()
    return float(known.mean()) if len(known) else None


def _codes(lines: pd.DataFrame) -> str:
    """Letters of the indicators that trip on any seed, or the word sound."""
    tripped = {part for badge in lines["badge"] for part in str(badge).split(", ")} - {SOUND}
    known = [code for name, code in BADGES.items() if name in tripped]
    return " ".join(known + sorted(tripped - BADGES.keys())) or SOUND


def _caption(epsilon: float, seeds: int, images: int, black_box: int) -> str:
    few = f"; black box attacks only the first {black_box:,} of them" * (0 < black_box < images)
    return (
        f"Is the robustness real? Audit at {epsilon_name(epsilon)}: accuracy in percent on "
        f"{images:,} test images, mean over {seeds} seed{'s' * (seeds != 1)}{few}. Eq. 7 is the "
        "mean over all iterates, as in the paper; the other columns count the images that are "
        "right on every iterate of an attack. Exact follows the network's own gradient where the "
        "paper passes the error of TN straight through; worst case is over all attacks. These "
        "numbers are not part of the paper's tables."
    )


def _legend() -> str:
    codes = ", ".join(f"{code} {name}" for name, code in BADGES.items())
    return f"Badge: {SOUND}, or signs at any epsilon that the paper's attack failed: {codes}."


def audit_bars(frame: pd.DataFrame, epsilons: int = 2) -> Figure:
    """Bars of each attack by method: a row of panels per dataset and model, the largest ε first."""
    if frame.empty:
        return empty("audit: not run yet")
    shown = sorted(frame["epsilon"].unique(), reverse=True)[:epsilons]
    blocks = list(dict.fromkeys(zip(frame["dataset"], frame["model"], strict=True)))
    attacks = [name for name in ATTACKS if name in frame and frame[name].notna().any()]
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
        handles = [Patch(color=_COLOURS[name], label=ATTACKS[name]) for name in attacks]
        figure.legend(handles=handles, loc="outside lower center", ncols=-(-len(handles) // 2))
    return figure


def _draw_bars(axis: Axes, frame: pd.DataFrame, attacks: Sequence[str]) -> None:
    methods = list(dict.fromkeys(frame["method"]))
    width = 0.84 / len(attacks)
    for place, name in enumerate(attacks):
        means = [_mean(frame.loc[frame["method"] == method, name]) for method in methods]
        at = np.arange(len(methods)) + (place - (len(attacks) - 1) / 2) * width
        heights = [np.nan if mean is None else mean for mean in means]
        axis.bar(at, heights, width, color=_COLOURS[name])
    axis.set_xticks(range(len(methods)), [method_name(method) for method in methods])
    axis.grid(axis="x", visible=False)
    axis.set_ylim(bottom=0)
