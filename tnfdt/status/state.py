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

from tnfdt.files import journal
from tnfdt.files.locks import ALIVE_SECONDS, is_held
from tnfdt.status import stalls
from tnfdt.study.machine import Machine
from tnfdt.study.paths import (
    CHECKPOINT,
    JOURNAL,
    LOCK,
    RECORD,
    Cell,
    StudyPaths,
    attack_job,
    attack_names,
)
from tnfdt.study.study import Study

STATES = ("done", "trained", "running", "stopped", "failed", "waiting")
_TAIL_BYTES = 8192
_WATCH_SECONDS = 5.0
_EPOCH = re.compile(r"\bepoch (\d+)/\d+")
_LEFT = re.compile(r"\d+ %, (\d+) s left")
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
    """A study: its cells in the order of the tables, its counts and the problems to fix."""

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
    from tnfdt.status import page

    while True:
        status = read(study, machine)
        text = to_json(status) if as_json else page.render(study, status)
        page.show(text, clear=watch and not as_json)
        if not watch or status.counts()["done"] == len(status.cells):
            return 0
        try:
            time.sleep(_WATCH_SECONDS)
        except KeyboardInterrupt:
            return 0


def read(study: Study, machine: Machine) -> StudyStatus:
    """Look at every cell of a study."""
    paths = machine.paths(study.name)
    look = _Look(study, paths)
    cells = [look.cell(cell) for cell in (*study.cells, *_variants(study, paths))]
    audits = sum(paths.audit_record(cell).is_file() for cell in look.audited)
    jobs = stalls.submitted_jobs(study, paths)
    problems = [*_data_failures(study, paths, look.now), *stalls.problems(paths, cells, jobs)]
    return StudyStatus(
        study=study.name,
        cells=cells,
        attacks=(sum(item.attacks for item in cells), len(cells) * len(study.attack.epsilons)),
        audits=(audits, len(look.audited)),
        problems=problems,
        pending=stalls.pending(jobs or []),
    )


def _variants(study: Study, paths: StudyPaths) -> list[Cell]:
    """The cells of other readings, row by row: where `all` runs them, or one has begun."""
    cells = sorted(study.variants, key=lambda cell: cell[:3])
    begun = (place(cell) for cell in cells for place in (paths.train, paths.attack))
    return cells if study.multiverse.include or any(path.is_dir() for path in begun) else []


def to_json(status: StudyStatus) -> str:
    """The status for programs: one JSON object."""
    cells = [{**asdict(item), "cell": item.cell.path} for item in status.cells]
    shown = {**asdict(status), "counts": status.counts(), "cells": cells}
    return json.dumps(shown, indent=2)


class _Look:
    """One look at a study; the logs of a row of the grid are listed once."""

    def __init__(self, study: Study, paths: StudyPaths) -> None:
        self.study, self.paths, self.now = study, paths, time.time()
        self._rows: dict[Path, frozenset[str]] = {}
        self.audited = set(study.audited()) if study.audit.include else set()

    def cell(self, cell: Cell) -> CellStatus:
        network = self.study.trained_as(cell)
        files = _names(self.paths.train(network))
        if RECORD in files:
            return self._trained(cell)
        if network != cell:
            return CellStatus(cell=cell, state="waiting")  # for a training that is shown as its own
        log = self.paths.log("train", cell.path)
        if log.parent not in self._rows:
            self._rows[log.parent] = _names(log.parent)
        if not files and log.name not in self._rows[log.parent]:
            return CellStatus(cell=cell, state="waiting")
        return self._started(cell, log)

    def _started(self, cell: Cell, log: Path) -> CellStatus:
        train = self.paths.train(cell)
        quiet = _quiet([log, train / JOURNAL, train / CHECKPOINT], self.now)
        tail, found = _tail(log), journal.read(train)
        times = [row["time"] for row in found.rows.values()] if found else []
        return CellStatus(
            cell=cell,
            state=_state(tail, quiet, held=is_held(train / LOCK)),
            epoch=len(times) or int((_EPOCH.findall(tail) or [0])[-1]),
            eta=_eta(times, self.study.training.epochs, tail, quiet or 0.0, self.now),
            quiet=quiet,
            note=_last_line(tail),
        )

    def _trained(self, cell: Cell) -> CellStatus:
        """A trained cell: done when every attack, and the audit if there is one, is recorded."""
        missing = self._missing_attacks(cell)
        done = len(self.study.attack.epsilons) - len(missing)
        if cell in self.audited and not self.paths.audit_record(cell).exists():
            missing.append(self.paths.log("audit", cell.path))
        quiet = {log: _quiet([log], self.now) for log in missing}
        states = {log: _state(_tail(log), age, held=False) for log, age in quiet.items()}
        begun = [log for log in missing if states[log] != "waiting"]
        if not begun:
            state = "trained" if missing else "done"
            return CellStatus(cell=cell, state=state, attacks=done)
        log = min(begun, key=lambda log: states[log])  # failed comes before running
        return CellStatus(
            cell=cell,
            state=states[log],
            attacks=done,
            quiet=quiet[log],
            note=_last_line(_tail(log)),
        )

    def _missing_attacks(self, cell: Cell) -> list[Path]:
        """The logs of the attacks that have no record, whether they have begun or not."""
        files = _names(self.paths.attack(cell))
        return [
            self.paths.log("attack", attack_job(cell, epsilon))
            for epsilon in self.study.attack.epsilons
            if attack_names(epsilon)[0] not in files
        ]


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


def _data_failures(study: Study, paths: StudyPaths, now: float) -> Iterator[str]:
    """Datasets that could not be prepared: no cell of theirs can start."""
    for dataset in study.grid_datasets:
        log = paths.log("data", dataset)
        if paths.manifest(dataset).exists() or not log.exists():
            continue
        tail = _tail(log)
        if _state(tail, _quiet([log], now), held=False) != "running":
            yield f"dataset {dataset} could not be prepared: {_last_line(tail)} ({log})"


def _names(folder: Path) -> frozenset[str]:
    try:
        return frozenset(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return frozenset()


def _quiet(paths: list[Path], now: float) -> float | None:
    """Seconds since one of the files was last written; None if there is none."""
    times = []
    for path in paths:
        with contextlib.suppress(OSError):
            times.append(os.stat(path).st_mtime)
    return max(now - max(times), 0.0) if times else None


def _tail(path: Path) -> str:
    """The end of a text file; a log that two processes wrote to may hold zero bytes."""
    with contextlib.suppress(OSError), open(path, "rb") as file:
        file.seek(max(os.fstat(file.fileno()).st_size - _TAIL_BYTES, 0))
        return file.read().replace(b"\0", b"").decode(errors="replace")
    return ""


def _last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")


def _eta(times: list[float], total: int, tail: str, quiet: float, now: float) -> float | None:
    """Seconds of training left: from the last line of progress, else from the last epochs."""
    if found := _LEFT.findall(tail):
        return max(float(found[-1]) - quiet, 0.0)
    last = times[-6:]
    if len(last) < 2:
        return None
    pace = (last[-1] - last[0]) / (len(last) - 1)
    return max((total - len(times)) * pace - (now - last[-1]), 0.0)
