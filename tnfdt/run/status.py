"""How far a study is, read from files alone; of a cluster only its queue is asked.

A record is written by rename, so that it is there means that the cell is done. What is not
done but alive holds the lock of its folder (on this machine) or has written to its log lately
(anywhere on the file system); what has a log and neither is stopped or failed.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tnfdt.run import stalls
from tnfdt.study.machine import Machine
from tnfdt.study.paths import Cell, format_epsilon
from tnfdt.study.study import Study

STATES = ("done", "trained", "running", "stopped", "failed", "waiting")
ALIVE_SECONDS = 120.0  # a job that goes on writes a line to its log every 30 s
_TAIL_BYTES = 8192
_WATCH_SECONDS = 5.0
_EPOCH = re.compile(r"\bepoch (\d+)/\d+")
_LEFT = re.compile(r"\d+ %, (\d+) s left")
_NO_ROW = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)
_ERROR = re.compile(r"tnfdt: (?!.*the same command goes on)|\S*(Error|Exception)\b")


@dataclass(frozen=True, kw_only=True)
class CellStatus:
    """One cell: its state, and what there is to say about it.

    `epoch` is the number of finished epochs, `eta` seconds of training that are left, `quiet`
    seconds since an unfinished cell was last heard of, `note` the last line of its log.
    """

    cell: Cell
    state: str
    attacks: int = 0
    epoch: int | None = None
    eta: float | None = None
    quiet: float | None = None
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class StudyStatus:
    """A study: its cells in the order of the tables, its counts and what needs a hand."""

    study: str
    cells: list[CellStatus]
    attacks: tuple[int, int]
    audits: tuple[int, int]
    problems: list[str]
    pending: list[str]  # why jobs wait in a cluster's queue

    def counts(self) -> dict[str, int]:
        found = Counter(item.state for item in self.cells)
        return {state: found[state] for state in STATES}


def run(study: Study, machine: Machine, *, watch: bool, as_json: bool) -> int:
    """Print the status once, or again and again until the study is done."""
    from tnfdt.run import status_page as status_view

    while True:
        status = read(study, machine)
        text = to_json(status) if as_json else status_view.render(study, status)
        status_view.show(text, clear=watch and not as_json)
        if not watch or status.counts()["done"] == len(status.cells):
            return 0
        try:
            time.sleep(_WATCH_SECONDS)
        except KeyboardInterrupt:
            return 0


def read(study: Study, machine: Machine) -> StudyStatus:
    """Look at every cell of a study."""
    folder = Path(machine.results_dir, study.name)
    look = _Look(study, folder)
    cells = [look.cell(cell) for cell in study.cells]
    audits = sum((folder / "audit" / c.path / "audit.json").is_file() for c in look.audited)
    jobs = stalls.submitted_jobs(study, folder)
    problems = [*_data_failures(study, folder, look.now), *stalls.problems(folder, cells, jobs)]
    return StudyStatus(
        study=study.name,
        cells=cells,
        attacks=(sum(item.attacks for item in cells), len(cells) * len(study.attack.epsilons)),
        audits=(audits, len(look.audited)),
        problems=problems,
        pending=stalls.pending(jobs or []),
    )


def to_json(status: StudyStatus) -> str:
    """The status for programs: one JSON object."""
    cells = [{**asdict(item), "cell": item.cell.path} for item in status.cells]
    shown = {**asdict(status), "counts": status.counts(), "cells": cells}
    return json.dumps(shown, indent=2)


class _Look:
    """One look at a study; the logs of a row of the grid are listed once."""

    def __init__(self, study: Study, folder: Path) -> None:
        self.study, self.folder, self.now = study, str(folder), time.time()
        self._rows: dict[str, frozenset[str]] = {}
        self.audited = set(study.audited()) if study.audit.include else set()

    def cell(self, cell: Cell) -> CellStatus:
        train = f"{self.folder}/train/{cell.path}"
        files = _names(train)
        if "record.json" in files:
            return self._trained(cell)
        row, _, name = f"{self.folder}/logs/train/{cell.path}.log".rpartition("/")
        if row not in self._rows:
            self._rows[row] = _names(row)
        if not files and name not in self._rows[row]:
            return CellStatus(cell=cell, state="waiting")
        return self._started(cell, train, files, f"{row}/{name}")

    def _started(self, cell: Cell, train: str, files: frozenset[str], log: str) -> CellStatus:
        signs = [log, *(f"{train}/{name}" for name in ("journal.jsonl", "checkpoint.pt"))]
        quiet, tail = _quiet(signs, self.now), _tail(log)
        state = _state(tail, quiet, held=".lock" in files and _is_held(f"{train}/.lock"))
        epochs = _journal(f"{train}/journal.jsonl") if "journal.jsonl" in files else []
        return CellStatus(
            cell=cell,
            state=state,
            epoch=len(epochs) or int((_EPOCH.findall(tail) or [0])[-1]),
            eta=_eta(epochs, self.study.training.epochs, tail, quiet or 0.0, self.now),
            quiet=quiet,
            note=_last_line(tail),
        )

    def _trained(self, cell: Cell) -> CellStatus:
        """A trained cell: done when every attack, and the audit if there is one, is recorded."""
        missing = self._missing_attacks(cell)
        done = len(self.study.attack.epsilons) - len(missing)
        if cell in self.audited and not os.path.exists(
            f"{self.folder}/audit/{cell.path}/audit.json"
        ):
            missing.append(f"{self.folder}/logs/audit/{cell.path}.log")
        quiet = {log: _quiet([log], self.now) for log in missing}
        states = {log: _state(_tail(log), age, held=False) for log, age in quiet.items()}
        begun = [log for log in missing if states[log] != "waiting"]
        if not begun:
            state = "trained" if missing else "done"
            return CellStatus(cell=cell, state=state, attacks=done)
        log = min(begun, key=lambda log: states[log])  # a failure is told before what is running
        return CellStatus(
            cell=cell,
            state=states[log],
            attacks=done,
            quiet=quiet[log],
            note=_last_line(_tail(log)),
        )

    def _missing_attacks(self, cell: Cell) -> list[str]:
        """The logs of the attacks that have no record, whether they have begun or not."""
        names = [f"eps{format_epsilon(epsilon)}" for epsilon in self.study.attack.epsilons]
        files = _names(f"{self.folder}/attack/{cell.path}")
        logs = f"{self.folder}/logs/attack/{cell.path}"
        return [f"{logs}/{name}.log" for name in names if f"{name}.json" not in files]


def _state(tail: str, quiet: float | None, *, held: bool) -> str:
    """waiting, running, failed or stopped (the next run goes on), from the signs of life."""
    if held:
        return "running"
    if quiet is None:
        return "waiting"
    if _ERROR.match(_last_line(tail)):
        return "failed"
    if quiet < ALIVE_SECONDS:
        return "running"
    return "failed" if "\nTraceback " in f"\n{tail}" else "stopped"


def _data_failures(study: Study, folder: Path, now: float) -> Iterator[str]:
    """Datasets that could not be prepared: no cell of theirs can start."""
    for dataset in dict.fromkeys(cell.dataset for cell in study.cells):
        log = str(folder / "logs/data" / f"{dataset}.log")
        if (folder / "data" / dataset / "manifest.json").exists() or not os.path.exists(log):
            continue
        tail = _tail(log)
        if _state(tail, _quiet([log], now), held=False) != "running":
            yield f"dataset {dataset} could not be prepared: {_last_line(tail)} ({log})"


def _names(folder: str) -> frozenset[str]:
    try:
        return frozenset(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return frozenset()


def _quiet(paths: list[str], now: float) -> float | None:
    """Seconds since one of the files was last written; None if there is none."""
    times = []
    for path in paths:
        with contextlib.suppress(OSError):
            times.append(os.stat(path).st_mtime)
    return max(now - max(times), 0.0) if times else None


def _is_held(path: str) -> bool:
    """Whether a process holds this lock, as far as the file system tells."""
    import fcntl

    with contextlib.suppress(OSError), open(path, "rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _tail(path: str) -> str:
    """The end of a text file; a log that two processes wrote to may hold zero bytes."""
    with contextlib.suppress(OSError), open(path, "rb") as file:
        file.seek(max(os.fstat(file.fileno()).st_size - _TAIL_BYTES, 0))
        return file.read().replace(b"\0", b"").decode(errors="replace")
    return ""


def _last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")


def _journal(path: str) -> list[dict[str, Any]]:
    """One row per finished epoch; a torn last line, or a row written twice, does no harm."""
    rows: dict[int, dict[str, Any]] = {}
    with contextlib.suppress(OSError), open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            with contextlib.suppress(*_NO_ROW):
                row = json.loads(line)
                rows[int(row["epoch"])] = {"time": float(row.get("time") or 0)}
    return [rows[epoch] for epoch in sorted(rows)]


def _eta(
    epochs: list[dict[str, Any]], total: int, tail: str, quiet: float, now: float
) -> float | None:
    """Seconds of training left: from the last line of progress, else from the last epochs."""
    if found := _LEFT.findall(tail):
        return max(float(found[-1]) - quiet, 0.0)
    times = [float(row["time"]) for row in epochs[-6:] if row.get("time")]
    if len(times) < 2:
        return None
    pace = (times[-1] - times[0]) / (len(times) - 1)
    return max((total - len(epochs)) * pace - (now - times[-1]), 0.0)
