"""The readings of the paper as tables: what each switch moves, claims by readings, and which
reading is the paper's."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import pandas as pd

from tnfdt.evidence.statistics import TTest
from tnfdt.tables import latex
from tnfdt.tables.cards import delta, interval
from tnfdt.tables.distances import TITLE, distance_frame, distance_grid
from tnfdt.tables.grid import MISSING, Grid, fixed, html_page, markdown, signed
from tnfdt.tables.paper import csv_text
from tnfdt.verdicts.distances import Distances
from tnfdt.verdicts.multiverse import ReadingOutcome, by_contrast, ranges, robustness

NOTE = (
    "The study's own reading is the primary one, and its verdicts do not depend on the others. No "
    "reading was chosen for its result: none gets a star for being the largest of many."
)
_SWITCHES = (
    "What each switch moves: the range of Δ over its values, the study's own among them, in "
    "points; the switch with the largest range first."
)
_CAPTION = (
    "{claim} under other readings of the paper: Δ in points with its 95 % interval; how far the "
    "reading moves it, and the plain network under the same measure, with intervals paired by "
    "seed and image."
)
_PAIRED = (
    "Readings share seeds and images: where a reading does not touch a method, its networks are "
    "the same ones, and a change of exactly 0 has no interval. A change is measured on the seeds "
    "that both readings have; where some are not run yet it is not the difference of the two Δ."
)
_COLUMNS = [
    *("claim", "contrast", "reading", "delta", "low", "high", "same_sign"),
    *("change", "change_low", "change_high", "baseline", "baseline_low", "baseline_high"),
    "verdict",
]

Groups = Mapping[tuple[str, str], list[ReadingOutcome]]


def multiverse_texts(found: Sequence[ReadingOutcome], apart: Distances) -> dict[str, str]:
    """The content of multiverse.csv, .md, .tex and .html, and of distances.csv."""
    groups = by_contrast(found)
    sections = {
        "Which switch matters most?": _switch_grid(groups),
        **{claim: _claim_grid(claim, groups) for claim in dict.fromkeys(c for c, _ in groups)},
        TITLE: distance_grid(apart),
    }
    grids = [*sections.values()]
    texts = [f"## {title}\n\n{markdown(grid)}" for title, grid in sections.items()]
    return {
        "multiverse.csv": csv_text(_frame(groups)),
        "multiverse.md": "\n".join(["# Other readings of the paper\n", *texts]),
        "multiverse.tex": "\n".join(latex.table(g, size="scriptsize", stretch=1.0) for g in grids),
        "multiverse.html": html_page(*grids),
        "distances.csv": csv_text(distance_frame(apart)),
    }


def _frame(groups: Groups) -> pd.DataFrame:
    rows = []
    for (claim, contrast), group in groups.items():
        for one in group:
            head, same = one.headline, one.holds == group[0].holds
            numbers = (head.estimate, head.low, head.high, same)
            moved = (*_bounds(one.change), *_bounds(one.baseline))
            rows.append((claim, contrast, one.title, *numbers, *moved, one.verdict))
    return pd.DataFrame(rows, columns=_COLUMNS)


def _bounds(test: TTest | None) -> tuple[float, float, float]:
    return (test.estimate, *test.interval()) if test else (math.nan,) * 3


def _claim_grid(claim: str, groups: Groups) -> Grid:
    """A row per contrast of a claim and reading."""
    chosen = {contrast: group for (name, contrast), group in groups.items() if name == claim}
    return Grid(
        label=f"multiverse-{claim}",
        caption=[_CAPTION.format(claim=claim)],
        header=("Contrast", "Reading", "Δ [95 %]", "Δ − own [95 %]", "Vanilla moves", "Verdict"),
        rows=[[name, *_cells(one)] for name, group in chosen.items() for one in group],
        blocks=[len(group) for group in chosen.values()],
        notes=[_PAIRED],
    )


def _cells(one: ReadingOutcome) -> list[str]:
    moved = (_moved(one.change), _moved(one.baseline))
    return [one.title, delta(one.headline), *moved, one.verdict]


def _moved(test: TTest | None) -> str:
    """A change with its interval; 0 alone where the networks are the same."""
    if test is None:
        return MISSING
    if test.estimate == 0 and not test.se > 0:
        return "0"
    return f"{signed(test.estimate)}{interval(*test.interval())}"


def _switch_grid(groups: Groups) -> Grid:
    """A row per switch, and below it what the readings say of each claim."""
    spans: dict[str, dict[str, float]] = {}
    for key, group in groups.items():
        for switch, span in ranges(group).items():
            spans.setdefault(switch, {})[_contrast(key)] = span
    ordered = sorted(spans, key=lambda switch: -max(spans[switch].values()))
    rows = [_switch_row(switch, spans[switch]) for switch in ordered]
    empty = [MISSING, MISSING, "no claim has results under another reading yet", MISSING]
    return Grid(
        label="multiverse",
        caption=[_SWITCHES],
        header=("Switch", "Largest range", "of claim", "Mean range over claims"),
        rows=rows or [empty],
        blocks=[len(rows) or 1],
        notes=[*_sentences(groups), NOTE],
    )


def _switch_row(switch: str, spans: Mapping[str, float]) -> list[str]:
    """The range of Δ of each contrast, in one line."""
    name, largest = max(spans.items(), key=lambda item: item[1])
    return [switch, fixed(largest), name, fixed(sum(spans.values()) / len(spans))]


def _contrast(key: tuple[str, str]) -> str:
    return f"{key[0]} ({key[1]})"


def _sentences(groups: Groups) -> Iterator[str]:
    for key, group in groups.items():
        yield f"{_contrast(key)}: {robustness(group).text}."
