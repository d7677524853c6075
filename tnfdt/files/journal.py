"""The journal of a training: one JSON line per epoch, appended as it happens.

The first line says what the training is: {"start": unix seconds, "params": {…}}. Rows of
history.csv follow, and {"end": status, "time": …} when the training ends by itself. A line that
a kill or a full disk has torn is skipped. Trackers and `tnfdt status` read it; the training
itself only appends, never waits and never fails for it.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tnfdt.files.atomic import atomic_path
from tnfdt.study.paths import JOURNAL

RESULTS = ("lr", "loss", "soft_cross_entropy", "train_accuracy", "test_accuracy")
# Where and with what a training runs may change when it is resumed; what it is may not.
PROVENANCE = ("commit", "versions", "hardware")

Row = dict[str, Any]
log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Contents:
    """What a journal says: the head, the rows by epoch, the status if it was ended."""

    start: float
    params: dict[str, Any]
    rows: dict[int, Row] = field(default_factory=dict)
    end: str | None = None


def read(folder: Path) -> Contents | None:
    """The journal in a cell's folder, None if there is none (or none that can be read)."""
    head, *lines = read_lines(folder / JOURNAL) or [{}]
    if "start" not in head:
        return None
    rows = {line["epoch"]: line for line in reversed(lines) if _is_row(line)}
    ends = [line["end"] for line in lines if "end" in line]
    return Contents(
        start=head["start"],
        params=head.get("params", {}),
        rows=dict(sorted(rows.items())),
        end=ends[-1] if ends else None,
    )


def _is_row(line: Row) -> bool:
    """Whether a line is that of an epoch, with numbers where numbers belong."""
    epoch, at = line.get("epoch"), line.get("time")
    return isinstance(epoch, int) and isinstance(at, int | float)


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


def agree(one: Row, other: Row) -> bool:
    """Whether two rows are of the same epoch of the same training."""
    pairs = [(one.get(key), other.get(key)) for key in RESULTS]
    return all(a == b or (a and b and math.isclose(a, b, rel_tol=1e-5)) for a, b in pairs)


def is_resumed(old: Contents | None, params: Mapping[str, Any]) -> bool:
    """Whether a journal was left by this same training, unfinished."""
    return old is not None and old.end != "FINISHED" and _essence(old.params) == _essence(params)


def _essence(params: Mapping[str, Any]) -> dict[str, Any]:
    return {key: params[key] for key in params if key not in PROVENANCE}


class Journal:
    """Append the epochs of a training, going on with a journal that was left unfinished.

    params: the keys config, interpretation, commit, versions, hardware of its record.
    stops: exceptions that mean that the training was stopped, not that it failed.
    Nothing is touched until the first epoch: a cell that is found done, or that another process
    trains, stays as it is.
    """

    def __init__(
        self,
        folder: Path,
        params: Mapping[str, Any],
        stops: tuple[type[BaseException], ...] = (),
    ) -> None:
        self.folder, self.path, self.stops = folder, folder / JOURNAL, stops
        self.params = json.loads(json.dumps(params, default=str))  # as they are read again
        self.start = self.created = time.time()
        self.rows: dict[int, Row] = {}
        self.is_open = self.warned = False

    def log_epoch(self, row: Mapping[str, Any]) -> None:
        """Append a row of history.csv, unless a training that was resumed has it already."""
        with self._never_fail():
            if not self.is_open:
                self._open()
            epoch = int(row["epoch"])
            self._append(epoch, {"time": time.time(), **row, "epoch": epoch})

    def _open(self) -> None:
        old = read(self.folder)
        if old and is_resumed(old, self.params):
            self.start, self.rows = old.start, dict(old.rows)
        self._write()
        self.is_open = True

    def _append(self, epoch: int, row: Row) -> None:
        known = self.rows.get(epoch)
        if known and agree(known, row):
            return
        if known:  # the same settings, but other code: this training started over
            self.rows = {key: self.rows[key] for key in self.rows if key < epoch}
            self._write()
        append(self.path, row)
        self.rows[epoch] = row

    def _write(self) -> None:
        self.start = self.start if self.rows else self.created
        lines = [{"start": self.start, "params": self.params}, *self.rows.values()]
        with atomic_path(self.path) as temporary:
            temporary.write_text("".join(map(_line, lines)), encoding="utf-8")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        stopped = kind and (issubclass(kind, self.stops) or not issubclass(kind, Exception))
        status = "KILLED" if stopped else "FAILED" if kind else "FINISHED"
        if self.is_open:
            with self._never_fail():
                append(self.path, {"end": status, "time": time.time()})

    @contextlib.contextmanager
    def _never_fail(self) -> Iterator[None]:
        """A full disk: one warning, and the training goes on."""
        try:
            yield
        except Exception as error:
            if not self.warned:
                log.warning("journal: %s; the training goes on without it", error)
            self.warned = True


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
