"""The journal of a training: one JSON line per epoch, appended as it happens.

The first line says what the training is: {"start": unix seconds, "params": {…}, "tags": {…}}.
Rows of history.csv follow, and {"end": status, "time": …} when the training ends by itself.
A line that a kill or a full disk has torn is skipped.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tnfdt.files.atomic import atomic_path

NAME = "journal.jsonl"
Row = dict[str, Any]

# Where and with what a training runs may change when it is resumed; what it is may not.
_PROVENANCE = ("commit", "versions", "hardware")


@dataclass(frozen=True, kw_only=True)
class Contents:
    """What a journal says: the head, the rows by epoch, the status if it was ended."""

    start: float
    params: dict[str, str]
    tags: dict[str, str]
    rows: dict[int, Row] = field(default_factory=dict)
    end: str | None = None


def read(folder: Path) -> Contents | None:
    """The journal in a cell's folder, None if there is none (or none that can be read)."""
    head, *lines = read_lines(folder / NAME) or [{}]
    if "start" not in head:
        return None
    rows = {int(line["epoch"]): line for line in reversed(lines) if "epoch" in line}
    ends = [line["end"] for line in lines if "end" in line]
    return Contents(
        start=head["start"],
        params=head.get("params", {}),
        tags=head.get("tags", {}),
        rows=dict(sorted(rows.items())),
        end=ends[-1] if ends else None,
    )


def read_lines(path: Path) -> list[Row]:
    """All whole lines of a JSON-lines file; a missing file has none."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    lines = []
    for line in text.splitlines():
        with contextlib.suppress(ValueError):
            value = json.loads(line)
            if isinstance(value, dict):
                lines.append(value)
    return lines


def is_resumed(old: Contents | None, params: Mapping[str, str]) -> bool:
    """Whether a journal was left by this same training, unfinished."""
    return old is not None and old.end != "FINISHED" and _essence(old.params) == _essence(params)


def _essence(params: Mapping[str, str]) -> dict[str, str]:
    return {key: params[key] for key in params if key.partition(".")[0] not in _PROVENANCE}


class Journal:
    """Append to the journal in `folder`, going on with one that was left unfinished."""

    def __init__(
        self, folder: Path, *, start: float, params: dict[str, str], tags: dict[str, str]
    ) -> None:
        old = read(folder)
        self.resumed = is_resumed(old, params)
        rows = old.rows if old and self.resumed else {}
        head = {"start": old.start if old and self.resumed else start}
        self.path, self.epochs = folder / NAME, set(rows)
        with atomic_path(self.path) as temporary:
            lines = [head | {"params": params, "tags": tags}, *rows.values()]
            temporary.write_text("".join(map(_line, lines)), encoding="utf-8")

    def epoch(self, row: Row) -> bool:
        """Append one epoch, unless a training that was resumed has it already."""
        epoch = int(row["epoch"])
        if epoch in self.epochs:
            return False
        append(self.path, {**row, "epoch": epoch})
        self.epochs.add(epoch)
        return True

    def end(self, status: str, time: float) -> None:
        append(self.path, {"end": status, "time": time})


def append(path: Path, value: Row) -> None:
    """Append one line in one write; the newline in front closes a line torn before."""
    handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        size = os.fstat(handle).st_size
        torn = size > 0 and os.pread(handle, 1, size - 1) != b"\n"
        data = ("\n" * torn + _line(value)).encode()
        if os.write(handle, data) != len(data):
            raise OSError(f"{path}: only a part of a line was written")
    finally:
        os.close(handle)


def _line(value: Row) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n"
