"""Why a verdict is what it is, in words: its rows, its guards, and what could be seen."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

from tnfdt.study.names import dataset_name, method_name, model_name
from tnfdt.verdicts.accuracy_rows import NO_ROOM, SPEED_ONLY
from tnfdt.verdicts.hypotheses import ClaimRow


def reason(verdict: str, rows: Sequence[ClaimRow]) -> str:
    """What the rows say, without a final point. `verdict` in the words of the paper's regime."""
    parts = [_counted(rows), *_opposed(verdict, rows), *_guards(rows)]
    if verdict in ("inconclusive", "direction only"):
        parts.append(_detectable(rows))
    return ", ".join(filter(None, parts))


def _counted(rows: Sequence[ClaimRow]) -> str:
    counts = Counter(row.status for row in rows)
    texts = [f"{counts['supported']} of {len(rows)} supported"]
    words = {"undecided": "undecided", NO_ROOM: "without room", "missing": "without results"}
    texts += [f"{counts[status]} {word}" for status, word in words.items() if counts[status]]
    if any(row.missing and row.status != "missing" for row in rows):
        texts.append("some seeds without results")
    return ", ".join(texts)


def _opposed(verdict: str, rows: Sequence[ClaimRow]) -> Iterator[str]:
    main = [row for row in rows if row.status == "opposed" and row.role == "claim"]
    below = [row for row in rows if row.status == "opposed" and row.role == "size"]
    if main:
        how = "" if all(row.counted for row in main) else "significantly "
        yield f"{len(main)} {how}the other way: {_places(main)}"
    if below and verdict != "contradicted":
        yield f"significantly less than the size claimed: {_places(below)}"


def _places(rows: Sequence[ClaimRow]) -> str:
    """Datasets, models and methods, as much as tells the rows apart from one another."""
    return ", ".join(dict.fromkeys(_place(row) for row in rows))


def _place(row: ClaimRow) -> str:
    beside = f" against {method_name(row.b)}" if row.b else ""
    other = f" on {dataset_name(row.against)}" if row.against else ""
    name, model = dataset_name(row.dataset), model_name(row.model)
    return f"{name}, {model} ({method_name(row.a)}{beside}{other})"


def _guards(rows: Sequence[ClaimRow]) -> Iterator[str]:
    for guard, text in (
        (NO_ROOM, "no room on"),
        (SPEED_ONLY, "speed only (both networks below 1 % on the last iterate) on"),
    ):
        names = dict.fromkeys(dataset_name(row.dataset) for row in rows if guard in row.guards)
        if names:
            yield f"{text} {', '.join(names)}"


def _detectable(rows: Sequence[ClaimRow]) -> str:
    open_rows = [row for row in rows if row.status == "undecided"]
    known = [row for row in open_rows if not math.isnan(row.detectable)]
    if not known:
        return "nothing can be tested with one seed or one image" if open_rows else ""
    largest = max(known, key=lambda row: row.detectable)
    return f"with 80 % power only effects of {_amount(largest)} or more would show in every row"


def _amount(row: ClaimRow) -> str:
    points = row.unit == "points"
    return f"{row.detectable:.2f} points" if points else f"{row.detectable:.0%}"
