"""The audit as tables: the paper's number, each attack's number, and the badge.

Pure: the frame of `audit_table` in, grids and texts out. Numbers are percentages.
"""

from __future__ import annotations

import pandas as pd

from tnfdt.study.names import dataset_name, epsilon_name, row_name
from tnfdt.study.study import Study
from tnfdt.tables import latex
from tnfdt.tables.grid import MISSING, Grid, Item, Number, fixed, html_page, markdown
from tnfdt.tables.paper import csv_text

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
        numbers = [Number(value=fixed(mean_or_none(lines[name]))) for name in columns]
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


def mean_or_none(values: pd.Series) -> float | None:
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


def audit_texts(frame: pd.DataFrame, study: Study, missing: int) -> dict[str, str]:
    """audit.tex, .md and .html with a table per epsilon, and audit.csv with every cell."""
    epsilons, black_box = sorted(study.attack.epsilons, reverse=True), study.audit.black_box
    grids = [audit_grid(frame, epsilon, missing, black_box) for epsilon in epsilons]
    readable = frame.assign(epsilon=[f"{epsilon:g}" for epsilon in frame["epsilon"]])
    return {
        "audit.tex": "\n".join(latex.table(grid, size="footnotesize") for grid in grids),
        "audit.md": "\n".join(map(markdown, grids)),
        "audit.html": html_page(*grids),
        "audit.csv": csv_text(readable),
    }
