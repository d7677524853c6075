"""Which reading is the paper's, as a table: the distance of each from the published numbers."""

from __future__ import annotations

from collections import Counter

import pandas as pd

from tnfdt.study.names import dataset_name, epsilon_name, method_name
from tnfdt.tables.grid import MISSING, Grid, fixed, signed
from tnfdt.verdicts.distances import Apart, Distance, Distances

TITLE = "Which reading is the paper's?"
_CAPTION = (
    "Which reading is the paper's? How far all numbers of a reading lie from the published ones, "
    "the nearest first: root mean square in standard errors of the comparison, about 1 to 1.5 "
    "where they differ by chance alone."
)
_NOTES = (
    "A reading whose seeds scatter more has larger standard errors and so comes out nearer; the "
    "mean absolute difference does not depend on them. Numbers that a reading does not touch are "
    "the same in several rows. The order says which choices the authors probably made; it "
    "decides no claim. A number of Table 2 is taken for the mean of three runs.",
)
_COLUMNS = [
    *("reading", "distance", "table", "dataset", "model", "method", "metric", "epsilon"),
    *("paper", "ours", "difference", "se", "standard_errors", "outcome"),
]


def distance_frame(found: Distances) -> pd.DataFrame:
    """A row per reading and published number; the distance is of the reading."""
    rows = [(one.title, one.errors, *_cells(row)) for one in found.readings for row in one.rows]
    return pd.DataFrame(rows, columns=_COLUMNS)


def _cells(row: Apart) -> tuple[object, ...]:
    at = row.place
    epsilon = "" if at.epsilon is None else f"{at.epsilon:g}"
    names = (at.table, at.dataset, at.model, at.a, at.measure, epsilon)
    test = (row.test.estimate, row.test.se, row.errors, row.outcome)
    return *names, row.published, row.ours, *test


def distance_grid(found: Distances) -> Grid:
    """A row per reading, the nearest first; or why there is none."""
    rows = [_row(one) for one in found.readings]
    empty = [[MISSING, "nothing to compare", *[MISSING] * 5]]
    return Grid(
        label="distances",
        caption=[_CAPTION],
        header=(
            *("Reading", "Numbers", "Distance (SE)", "Mean difference (points)"),
            *("Agree, differ, unclear", "Vanilla, no attack (paper)", "Furthest number (paper)"),
        ),
        rows=rows or empty,
        blocks=[len(rows) or 1],
        notes=_NOTES if rows else [f"Empty: {found.why}"],
    )


def _row(one: Distance) -> list[str]:
    counts = Counter(row.outcome for row in one.rows)
    far = one.furthest
    return [
        one.title,
        f"{len(one.rows)} of {one.planned}",
        fixed(one.errors),
        fixed(one.points),
        ", ".join(str(counts[word]) for word in ("agrees", "differs", "cannot tell")),
        ", ".join(f"{dataset_name(row.place.dataset)} {_beside(row)}" for row in one.baselines)
        or MISSING,
        f"{_name(far)} {_beside(far)}, {signed(far.errors, 1)} SE",
    ]


def _name(row: Apart) -> str:
    at = row.place
    column = "clean" if at.epsilon is None else epsilon_name(at.epsilon)
    return f"{dataset_name(at.dataset)} {method_name(at.a)} {column}"


def _beside(row: Apart) -> str:
    return f"{fixed(row.ours)} ({fixed(row.published)})"
