"""`python -m tnfdt.tracking.sender`: the child that carries a cell's files to MLflow.

It is started by `live` and gets its orders as one JSON line on standard input. The end of its
input is the end of the training, or of the process that trained: it then sends the rest and
goes, within a few seconds. It runs at the lowest priority, and whatever goes wrong with the
store is one line on standard error.

A thread of the training would do with less, but it would import mlflow there: two to three
seconds in which the training waits for the interpreter's lock at every call of torch.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import select
import signal
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tnfdt.study.paths import Cell
from tnfdt.tracking.address import mask_text, mask_uri
from tnfdt.tracking.embedded import require_store
from tnfdt.tracking.view import RunView, read_cell

if TYPE_CHECKING:
    from tnfdt.tracking.store import Known, Store

PERIOD = 5.0  # seconds between two sends at least: MLflow's page refreshes every 30
LONGEST_PAUSE = 120.0  # seconds between two tries of a store that fails
GRACE = 3.0  # seconds after the death of the training in which this process ends


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the training's; we see its end
    logging.disable(logging.CRITICAL)
    line = _first_line()
    if line:
        orders = json.loads(line)
        os.nice(orders["nice"])
        Sender(orders, Watch(orders["pid"])).run()
        os._exit(0)  # the training waits for us, and taking mlflow down takes its time


def _first_line() -> bytes:
    data = b""
    while not data.endswith(b"\n"):
        part = os.read(0, 65536)
        if not part:
            return b""
        data += part
    return data


class Watch:
    """Look for the end of the training in a thread: a call to MLflow may hang meanwhile."""

    def __init__(self, pid: int) -> None:
        self.pid, self.over = pid, threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        # A process that the training forked may hold the other end of the pipe open: so look
        # for the parent as well.
        while os.getppid() == self.pid and not select.select([0], [], [], 1.0)[0]:
            pass
        self.over.set()
        while os.getppid() == self.pid:  # it waits for us, and ends us when it is tired of it
            time.sleep(0.2)
        time.sleep(GRACE)
        os._exit(0)


class Sender:
    """Bring one cell's run in line with its files, again and again."""

    def __init__(self, orders: dict[str, Any], watch: Watch) -> None:
        self.uri, self.study, self.cell = orders["uri"], orders["study"], Cell(*orders["cell"])
        self.folder, self.trains = Path(orders["folder"]), orders["trains"]
        self.watch, self.warned = watch, False
        self.store: Store | None = None
        self.known: Known | None = None

    def run(self) -> None:
        from tnfdt.tracking.system import Sampler

        train = self.folder / "train" / self.cell.path
        sampler = Sampler(train, self.watch.pid) if self.trains else None
        pause, last = PERIOD, False
        while not last:
            last = self.watch.over.is_set()
            if sampler and not last:
                with contextlib.suppress(OSError):
                    sampler.sample(time.time())
            pause = PERIOD if self._try(last) else min(2 * pause, LONGEST_PAUSE)
            self.watch.over.wait(0 if last else pause)

    def _try(self, last: bool) -> bool:
        try:
            self._send(last)
        except Exception as error:
            self.known = None  # look again at what arrived
            self._warn(error)
            return False
        return True

    def _send(self, last: bool) -> None:
        if self.store is None:
            require_store(self.uri)
            from tnfdt.tracking.store import Store

            self.store = Store(self.uri, self.study, self.folder)
        known = self.known or self.store.find(self.cell.path)
        view = read_cell(self.folder, self.study, self.cell)
        if view is None:
            return
        if last and self.trains and view.status == "RUNNING":
            view = _killed(view)
        sent = self.store.bring_in_line(view, known)
        if sent.run is not self.known:
            from tnfdt.tracking.catalogue import write_sidecar

            write_sidecar(self.folder, self.cell.path, self.store, sent.run.run_id)
        self.known = sent.run

    def _warn(self, error: Exception) -> None:
        """One line in the life of a process."""
        if not self.warned:
            text = mask_text(f"{type(error).__name__}: {error}", self.uri)[:200]
            store = mask_uri(self.uri)
            line = f"tracking: {store} ({text}); the rest is sent later, or by `tnfdt track`"
            print(line, file=sys.stderr, flush=True)
        self.warned = True


def _killed(view: RunView) -> RunView:
    """The training is gone and has not said how it ended."""
    end = max([view.start, *(point.timestamp for point in view.points)])
    return replace(view, status="KILLED", end=end)


if __name__ == "__main__":
    main()
