"""The audit as tables: the paper's number, each attack's number, and the badge.

Pure: the frame of `audit_table` in, grids and texts out. Numbers are percentages.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

import pandas as pd

from tnfdt.study.attack_settings import SOUND_DISTANCE
from tnfdt.study.names import AUDIT_ATTACKS, dataset_name, epsilon_name, row_name
from tnfdt.study.study import Study
from tnfdt.tables import latex
from tnfdt.tables.grid import MISSING, Grid, Item, Number, fixed, html_page, markdown
from tnfdt.tables.paper import csv_text

# Columns of the frame: the paper's attack in three readings, then the others' worst.
BADGES = {
    "loss still moving": "L",
    "adversarial lost": "A",
    "zero gradients": "Z",
    "gradient misleads": "G",
    "gradient free wins": "F",
    "stronger attack": "S",
    "accuracy not falling": "N",
    "chance not reached": "C",
    "square wins": "Q",
    "randomized": "R",
    "dynamic": "D",
    "probabilities": "P",
    "apgd zero gradients": "V",
}
COLUMNS = {"clean": "Clean", **AUDIT_ATTACKS}
SOUND = "sound"
NONE: Mapping[str, int] = {}
_ROW = ["dataset", "model", "method"]


def audit_grid(
    frame: pd.DataFrame,
    epsilon: float,
    missing: int = 0,
    few: Mapping[str, int] = NONE,
    notes: Sequence[str] = (),
) -> Grid:
    """One row per dataset, model and method: means over the audited seeds at one epsilon.

    `missing` is how many cells are still to be audited, `few` how many images of each the attacks
    of these columns are run on, `notes` what else there is to say.
    """
    chosen = frame[frame["epsilon"] == epsilon]
    columns = _present(chosen)
    rows: list[list[Item]] = []
    groups: list[tuple[str, str]] = []
    for key, lines in chosen.groupby(_ROW, sort=False):
        dataset, model, method = map(str, key)
        numbers = [_number(lines, name) for name in columns]
        rows.append([dataset_name(dataset), row_name(model, method), *numbers, _codes(lines)])
        groups.append((dataset, model))
    few = {title: few[name] for name, title in columns.items() if name in few}
    return Grid(
        label=f"audit_{epsilon:g}",
        caption=[_caption(epsilon, chosen, few)],
        header=("Dataset", "Model", *columns.values(), "Badge"),
        rows=rows or [[MISSING, "not run yet", *[MISSING] * (len(columns) + 1)]],
        blocks=[*Counter(groups).values()] or [1],
        notes=[_legend(), *_missing(missing), *notes],
    )


def _missing(count: int) -> list[str]:
    return [f"{MISSING} not run yet: {count} cells."] if count else []


def _present(frame: pd.DataFrame) -> dict[str, str]:
    """The columns that have a number, or whose attack was asked for and could not run."""
    known = [name for name in COLUMNS if name in frame and frame[name].notna().any()]
    asked = {name for name in COLUMNS if any(_why(frame, name))}
    return {name: COLUMNS[name] for name in COLUMNS if name in known or name in asked}


def _why(lines: pd.DataFrame, name: str) -> list[str]:
    """Why an attack that was asked for is missing, once a reason."""
    texts = lines.get("not_run", pd.Series(dtype=str))
    parts = dict.fromkeys(part for text in texts for part in str(text).split(", "))
    return [part.removeprefix(f"{name} ") for part in parts if part.startswith(f"{name} ")]


def _number(lines: pd.DataFrame, name: str) -> Item:
    mean, why = float(lines[name].astype(float).mean()), _why(lines, name)
    return why[0] if math.isnan(mean) and why else Number(value=fixed(mean))


def _codes(lines: pd.DataFrame) -> str:
    """Letters of the indicators that trip on any seed, or the word sound."""
    tripped = {part for badge in lines["badge"] for part in str(badge).split(", ")} - {SOUND}
    known = [code for name, code in BADGES.items() if name in tripped]
    return " ".join(known + sorted(tripped - BADGES.keys())) or SOUND


def _caption(epsilon: float, frame: pd.DataFrame, few: Mapping[str, int]) -> str:
    seeds, images = frame["seed"].nunique(), int(frame["images"].max()) if len(frame) else 0
    limited = [f"{name} the first {n:,}" for name, n in few.items() if 0 < n < images]
    return (
        f"Is the robustness real? Audit at {epsilon_name(epsilon)}: accuracy in percent on "
        f"{images:,} test images, mean over {seeds} seed{'s' * (seeds != 1)}"
        f"{'; of them, ' * bool(limited)}{' and '.join(limited)}. "
        "The paper's attack has three columns: the mean over all iterates (Eq. 7), its last "
        "iterate, and the images right on every iterate; the other attacks have the last of "
        "these. Exact follows the network's own gradient where the paper passes the error of TN "
        "straight through; worst case is over all attacks. These numbers are not part of the "
        "paper's tables."
    )


def _legend() -> str:
    codes = ", ".join(f"{code} {name}" for name, code in BADGES.items())
    distance = round(100 * SOUND_DISTANCE)
    return (
        f"Badge: {SOUND} if the worst of all attacks is within {distance} points of the last "
        f"iterate of the paper's and nothing else speaks against it, or the signs that it failed: "
        f"{codes}."
    )


def audit_texts(
    frame: pd.DataFrame, study: Study, missing: int, notes: Sequence[str] = ()
) -> dict[str, str]:
    """audit.tex, .md and .html with a table per epsilon, and audit.csv with every cell."""
    epsilons = sorted(study.audit.epsilons(study.attack), reverse=True)
    few = {"black_box": study.audit.black_box}
    if study.audit.autoattack:
        few["autoattack"] = study.audit.autoattack.images or 0
    grids = [audit_grid(frame, epsilon, missing, few, notes) for epsilon in epsilons]
    readable = frame.assign(epsilon=[f"{epsilon:g}" for epsilon in frame["epsilon"]])
    return {
        "audit.tex": "\n".join(latex.table(grid, size="footnotesize") for grid in grids),
        "audit.md": "\n".join(map(markdown, grids)),
        "audit.html": html_page(*grids),
        "audit.csv": csv_text(readable),
    }
