"""The status of a study as a page of text: a matrix of cells and the lines that need reading."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Sequence
from itertools import groupby

from tnfdt.status.state import STATES, CellStatus, StudyStatus
from tnfdt.study.names import duration
from tnfdt.study.study import Study

_LISTED = 15  # lines of detail per state
_SYMBOLS = {
    "done": ("■", "#", 32),
    "trained": ("□", "o", 36),
    "running": ("▶", ">", 34),
    "stopped": ("‖", "=", 33),
    "failed": ("✗", "x", 31),
    "waiting": ("·", ".", 90),
}  # character, its ASCII stand-in, ANSI colour
_MEANING = {
    "trained": "trained, attacks or audit to come",
    "stopped": "stopped, goes on with the next run",
}


def render(study: Study, status: StudyStatus, *, width: int | None = None) -> str:
    """The page: counts, one row per dataset, model and method, then what needs reading."""
    width = width or max(shutil.get_terminal_size().columns, 40)
    lines = [_summary(status), ""]
    lines += [*_matrix(study, status.cells, width), ""]
    for state in ("running", "stopped", "failed"):
        lines += _details(state, status.cells, study.training.epochs, width)
    lines += status.pending
    lines += [_paint("failed", f"! {line}") for line in status.problems]
    return "\n".join(lines).rstrip()


def show(text: str, *, clear: bool) -> None:
    """Print, on a cleared screen if asked and if there is one."""
    if clear and sys.stdout.isatty():
        print("\x1b[H\x1b[J", end="")
    print(text, flush=True)


def _summary(status: StudyStatus) -> str:
    counts = status.counts()
    states = [
        _paint(state, f"{_symbol(state)} {counts[state]} {_MEANING.get(state, state)}")
        for state in STATES
        if counts[state]
    ]
    parts = [f"{status.attacks[0]} of {status.attacks[1]} attacks"]
    parts += [f"{status.audits[0]} of {status.audits[1]} audits"] if status.audits[1] else []
    return f"{status.study}: {len(status.cells)} cells, {', '.join(parts)}\n" + "   ".join(states)


def _matrix(study: Study, cells: Sequence[CellStatus], width: int) -> list[str]:
    """A character per seed, wrapped where the seeds do not fit beside the name."""
    rows = [
        ("/".join(key), list(group)) for key, group in groupby(cells, lambda item: item.cell[:3])
    ]
    label = max(len(name) for name, _ in rows)
    room = max(width - label - 14, 10)
    lines = []
    for name, group in rows:
        for start in range(0, len(group), room):
            part = group[start : start + room]
            painted = "".join(_paint(item.state, _symbol(item.state)) for item in part)
            lines.append(f"{name if start == 0 else '':{label}}  {painted}")
        attacked = sum(item.attacks for item in group)
        lines[-1] += f"  {attacked}/{len(group) * len(study.attack.epsilons)}"
    return lines


def _details(state: str, cells: Iterable[CellStatus], epochs: int, width: int) -> list[str]:
    """What each cell in this state is at."""
    found = [item for item in cells if item.state == state]
    lines = [_paint(state, _cut(_detail(item, epochs), width)) for item in found[:_LISTED]]
    if len(found) > _LISTED:
        lines.append(f"  and {len(found) - _LISTED} more {state}; --json lists all")
    return lines


def _detail(item: CellStatus, epochs: int) -> str:
    head = f"{_symbol(item.state)} {item.cell.path}"
    if item.state == "running" and item.epoch is not None:
        left = f", {duration(item.eta)} left" if item.eta is not None else ""
        return f"{head}: {item.epoch} of {epochs} epochs{left}"
    empty = "has just begun" if item.state == "running" else "its log is empty"
    return f"{head}: {item.note or empty}"


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def _symbol(state: str) -> str:
    unicode, plain, _ = _SYMBOLS[state]
    encoding = (sys.stdout.encoding or "").lower().replace("-", "")
    return unicode if encoding == "utf8" else plain


def _paint(state: str, text: str) -> str:
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR"):
        return text
    return f"\x1b[{_SYMBOLS[state][2]}m{text}\x1b[0m"
