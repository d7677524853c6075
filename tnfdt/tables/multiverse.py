"""The readings of the paper as a table: claims by readings, and what each switch moves."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from tnfdt.tables import latex
from tnfdt.tables.cards import delta
from tnfdt.tables.grid import Grid, html_page, markdown
from tnfdt.tables.paper import csv_text
from tnfdt.verdicts.multiverse import Outcome, by_contrast, ranges, robustness

_CAPTION = (
    "The paper under other readings of the points it leaves open: mean difference behind each "
    "claim in points, 95 % interval, verdict. The study's own reading is the primary one."
)
_NOTE = (
    "Readings share seeds and images, so their differences are paired: where a reading does not "
    "touch a method, its networks are the same ones. No reading was chosen for its result, and "
    "none is marked significant for being the largest of many."
)
COLUMNS = ["claim", "contrast", "reading", "delta", "low", "high", "same_sign", "verdict"]


def multiverse_texts(found: Sequence[Outcome]) -> dict[str, str]:
    """The content of multiverse.csv, .md, .tex and .html."""
    grid = _grid(found)
    return {
        "multiverse.csv": csv_text(_frame(found)),
        "multiverse.md": markdown(grid),
        "multiverse.tex": latex.table(grid, size="scriptsize", stretch=1.0),
        "multiverse.html": html_page(grid),
    }


def _frame(found: Sequence[Outcome]) -> pd.DataFrame:
    rows = []
    for (claim, contrast), group in by_contrast(found).items():
        for one in group:
            head = one.headline
            numbers = (head.estimate, head.low, head.high)
            same = one.holds == group[0].holds
            rows.append((claim, contrast, one.title, *numbers, same, one.verdict))
    return pd.DataFrame(rows, columns=COLUMNS)


def _grid(found: Sequence[Outcome]) -> Grid:
    groups = by_contrast(found)
    rows = [
        [f"{claim} ({contrast})", one.title, delta(one.headline), one.verdict]
        for (claim, contrast), group in groups.items()
        for one in group
    ]
    return Grid(
        label="multiverse",
        caption=[_CAPTION],
        header=("Claim", "Reading", "Δ [95 % interval]", "Verdict"),
        rows=rows or [["–", "no claim has results in this study yet", "–", "–"]],
        blocks=[len(group) for group in groups.values()] or [1],
        notes=[*(_text(key, group) for key, group in groups.items()), _NOTE],
    )


def _text(key: tuple[str, str], group: Sequence[Outcome]) -> str:
    spans = ", ".join(f"{switch} {span:.2f}" for switch, span in ranges(group).items())
    moved = f"; range of Δ by switch, in points: {spans}" if spans else ""
    return f"{key[0]} ({key[1]}): {robustness(group)}{moved}."
