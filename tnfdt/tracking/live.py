"""Tracking as a training sees it: append to a journal, never wait, never fail."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tnfdt.files.journal import Journal
from tnfdt.study.paths import Cell
from tnfdt.tracking.address import resolve_uri
from tnfdt.tracking.embedded import QUIET
from tnfdt.tracking.points import SYSTEM
from tnfdt.tracking.view import flatten_params

LOWEST = 19  # the priority of a child that must not slow its parent
ATTACK_FLUSH = 5.0  # seconds that an attack waits for its numbers to be sent

log = logging.getLogger(__name__)


class CellTracker:
    """Track one training. `folder` is the cell's train folder; `uri` None tracks nothing.

    params: the keys config, interpretation, commit, versions, hardware of its record, or flat.
    stops: exceptions that mean that the training was stopped, not that it failed.
    flush, nice: seconds for the last send, and the child's priority, in place of the usual.
    Nothing is touched until the training begins (`start`, or the first epoch): a cell that is
    found done, or that another process trains, stays as it is.
    """

    def __init__(
        self,
        uri: str | None,
        study: str,
        cell: Cell,
        folder: Path,
        *,
        params: Mapping[str, Any],
        tags: Mapping[str, Any],
        stops: tuple[type[BaseException], ...] = (),
        flush: float | None = None,
        nice: int = LOWEST,
    ) -> None:
        self.uri, self.study, self.cell = uri and resolve_uri(uri), study, cell
        self.folder, self.flush, self.created = folder.absolute(), flush, time.time()
        self.params, self.stops, self.nice = flatten_params(params), stops, nice
        self.tags = {key: str(value) for key, value in tags.items()}
        self.journal: Journal | None = None
        self.child: Child | None = None
        self.ended = self.warned = False

    def start(self) -> None:
        """Open the journal and show the run in MLflow; the first epoch does it otherwise."""
        if self.uri is None or self.journal:
            return
        with self._never_fail():
            self.journal = Journal(
                self.folder, start=self.created, params=self.params, tags=self.tags
            )
            if not self.journal.resumed:
                (self.folder / SYSTEM).unlink(missing_ok=True)
            root = self.folder.parents[4]
            self.child = Child(self.uri, self.study, self.cell, root, trains=True, nice=self.nice)

    def log_epoch(self, row: Mapping[str, Any]) -> None:
        """Append a row of history.csv to the journal and return; the child sends it."""
        self.start()
        with self._never_fail():
            stamped = {"time": time.time(), **row}
            if self.journal:
                self.journal.epoch(stamped)

    def close(self, status: str = "FINISHED") -> None:
        """End the journal and give the child a moment to send the rest: a quarter of a percent
        of the training's time, at most five seconds. What it does not manage, `track` does."""
        if self.ended:
            return
        self.ended = True
        with self._never_fail():
            if self.journal:
                self.journal.end(status, time.time())
        if self.child:
            usual = min((time.time() - self.created) / 400, 5.0)
            self.child.close(usual if self.flush is None else self.flush)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            return self.close("FINISHED")
        failed = issubclass(kind, Exception) and not issubclass(kind, self.stops)
        return self.close("FAILED" if failed else "KILLED")

    @contextlib.contextmanager
    def _never_fail(self) -> Any:
        """A full disk, no more processes: one warning, and the training goes on."""
        try:
            yield
        except Exception as error:
            if not self.warned:
                log.warning("tracking: %s; the training goes on without its journal", error)
            self.warned = True


class AttackTracker:
    """Around an attack or audit: the child gets ready meanwhile, and at the end continues the
    cell's run with the records written. `folder` is the cell's folder of that stage."""

    def __init__(
        self,
        uri: str | None,
        study: str,
        cell: Cell,
        folder: Path,
        *,
        flush: float = ATTACK_FLUSH,
        nice: int = LOWEST,
    ) -> None:
        self.child: Child | None = None
        self.flush = flush
        if uri is not None:
            root = folder.absolute().parents[4]
            try:
                self.child = Child(resolve_uri(uri), study, cell, root, trains=False, nice=nice)
            except OSError as error:
                log.warning("tracking: %s; `tnfdt track` sends the attack later", error)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()
        elif self.child:
            self.child.close(0.0)

    def close(self) -> None:
        if self.child:
            self.child.close(self.flush)


def log_attack(uri: str | None, study: str, cell: Cell, folder: Path) -> None:
    """Continue the cell's run with the attacks in `folder`, its attack folder; never fails.

    `AttackTracker` around the attack does the same without the seconds that mlflow's import
    takes here.
    """
    AttackTracker(uri, study, cell, folder, nice=0).close()


class Child:
    """The process that sends; it ends with this one. `folder` is the study's."""

    def __init__(
        self,
        uri: str,
        study: str,
        cell: Cell,
        folder: Path,
        *,
        trains: bool,
        nice: int,
    ) -> None:
        orders = {
            "uri": uri,  # by the pipe, as it may hold a password and others can read arguments
            "study": study,
            "cell": list(cell),
            "folder": str(folder),
            "trains": trains,
            "nice": nice,
            "pid": os.getpid(),
        }
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tnfdt.tracking.sender"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            env={**os.environ, **QUIET, "OPENBLAS_NUM_THREADS": "1"},
        )
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):  # it is gone already; `track` sends all
            self.process.stdin.write(json.dumps(orders).encode() + b"\n")
            self.process.stdin.flush()

    def close(self, seconds: float) -> None:
        """Let the child send the rest for some seconds, then end it."""
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
