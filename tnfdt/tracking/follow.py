"""`tnfdt track`: all runs of a study in line with its files, once or again and again.

A Snakemake run starts one process that follows: every few seconds it looks at which files have
changed, and brings the runs of those cells in line. What it cannot send now, it sends later.
"""

from __future__ import annotations

import contextlib
import csv
import io
import os
import select
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path

from tnfdt.files.atomic import atomic_path
from tnfdt.study.paths import JOURNAL, Cell, StudyPaths
from tnfdt.study.schema import UserError
from tnfdt.tracking.address import mask_text, mask_uri, resolve_uri, sqlite_path
from tnfdt.tracking.experiment import Store, Summary
from tnfdt.tracking.groups import averaged, group_view
from tnfdt.tracking.sqlite_store import import_mlflow, init_store
from tnfdt.tracking.view import CELL_TAG, RunView, is_alive, read_cell, span

PERIOD = 3.0  # seconds between two looks at least: MLflow's page refreshes every 30
LONGEST_PAUSE = 60.0  # seconds between two tries of a store that fails
GRACE = 3  # seconds after the death of the run in which its follower ends
COLUMNS = (*Cell._fields, "run_id", "experiment_id", "tracking_uri")
_NOTE_LIMIT = 8000  # characters of a tag that MLflow stores

Networks = Mapping[Cell, Cell]
Signature = tuple[tuple[int, int] | None, ...]


def track(results: Path, study: str, uri: str, cells: Networks | None = None) -> Summary:
    """Bring MLflow in line with results/{study}: run it as often as you like, also on a store
    that is empty. Runs of cells that are not on this disk are left alone."""
    tracker = Tracker(results, study, uri, cells)
    if not tracker.paths.folder.is_dir():
        raise UserError(f"{tracker.paths.folder} does not exist; train something first")
    return tracker.sync(everything=True)


def follow_run(results: Path, study: str, uri: str, cells: Networks) -> Summary:
    """Track what changes until SIGTERM or Ctrl-C, and then everything once more."""
    tracker, stop = Tracker(results, study, uri, cells), _Stop()
    pause, warned = 0.0, False
    while not stop.wait(max(pause, 10 * tracker.looked)):
        try:
            tracker.sync()
            pause, warned = PERIOD, False
        except Exception as error:  # whatever it is: the records are there, so try later
            pause = min(max(PERIOD, 2 * pause), LONGEST_PAUSE)
            if not warned:
                text = mask_text(str(error), tracker.uri)[:300]
                print(f"tracking: {text}; it is tried again", file=sys.stderr, flush=True)
            warned = True
    return tracker.sync(everything=True)


class _Stop:
    """Set by SIGTERM and Ctrl-C. When the process that started this one is gone, or asks twice,
    this one ends within seconds, whatever call it is in."""

    def __init__(self) -> None:
        self.parent, self.asked = os.getppid(), False
        self.reader, self.writer = os.pipe()  # an Event may block in a handler
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._ask)

    def _ask(self, *_: object) -> None:
        if self.asked or os.getppid() != self.parent:
            signal.alarm(GRACE)
        if not self.asked:
            os.write(self.writer, b"x")
        self.asked = True

    def wait(self, seconds: float) -> bool:
        return bool(select.select([self.reader], [], [], seconds)[0])


class Tracker:
    """Brings the runs of a study in line with its files, and remembers which it has seen.

    cells: those of the study, each with the cell whose training it has, mostly itself. Of them
    alone a group is the mean where it has some of them. It is shown when all its seeds are
    trained, or, of those that are, when everything is tracked.
    """

    def __init__(self, results: Path, study: str, uri: str, cells: Networks | None = None) -> None:
        self.paths, self.study, self.uri = StudyPaths(results / study), study, resolve_uri(uri)
        self.cells = frozenset(cells or {})
        self.networks = {cell: own for cell, own in (cells or {}).items() if cell != own}
        self.seeds = Counter(cell.row for cell in self.cells)
        self.looked = 0.0  # seconds that the last look at the files took
        self.store: Store | None = None
        self.seen: dict[Cell, Signature] = {}
        self.running: set[Cell] = set()

    def sync(self, *, everything: bool = False) -> Summary:
        """Bring in line what has changed since the last time, or all there is."""
        try:
            with _store_errors(self.uri):
                return self._sync(everything)
        except BaseException:
            self.store = None  # look again at what arrived
            raise

    def _sync(self, everything: bool) -> Summary:
        if self.store is None:
            init_store(self.uri)
            self.store = Store(self.uri, self.study, self.paths.folder)
            self.seen.clear()
        store, summary = self.store, Summary(uri=mask_uri(self.uri))
        views: list[RunView] = []
        with store.lock():
            if everything:
                store.refresh()
                self.seen.clear()
            for cells in self._changed():
                views += self._sync_group(store, list(cells), everything, summary)
                self.seen |= cells
            if everything and views:
                store.bring_in_line(self._study_view(views), None, Summary(uri=""))
            store.show_columns()
            if everything or summary.created or summary.superseded:
                self._write_runs(store)
        return summary

    def _changed(self) -> list[dict[Cell, Signature]]:
        """The groups of which a cell has changed: their cells with their signatures."""
        begin = time.monotonic()
        groups = [
            {cell: self._signature(cell) for cell in cells}
            for _, cells in groupby(self._begun(), lambda cell: cell.row)
        ]
        died = {cell for cell in self.running if not is_alive(self.paths, cell)}
        self.looked = time.monotonic() - begin
        return [
            cells
            for cells in groups
            if not cells.items() <= self.seen.items() or not died.isdisjoint(cells)
        ]

    def _begun(self) -> list[Cell]:
        """The cells there is something of, in order: trained, or attacked on another's training."""
        trained = [cell for cell in self.paths.trained() if cell not in self.networks]
        attacked = [cell for cell in self.networks if self.paths.attack(cell).is_dir()]
        return sorted([*trained, *attacked], key=lambda cell: cell.path.split("/"))

    def _signature(self, cell: Cell) -> Signature:
        """What changes when a file of the cell does. Records are renamed into their folders,
        which shows there; the journal is appended to."""
        train = self.paths.train(self.networks.get(cell, cell))
        places = (train, train / JOURNAL, self.paths.attack(cell), self.paths.audit(cell))
        return tuple(map(_stat, places))

    def _sync_group(
        self, store: Store, cells: list[Cell], everything: bool, summary: Summary
    ) -> list[RunView]:
        """The seeds of a group and the run above them; returns the seeds' views, without points."""
        views = {cell: view for cell in cells if (view := self._read(cell, summary))}
        if not views:
            return []
        own = {cell: views[cell] for cell in views if cell in self.cells} or views
        group = group_view(self.study, list(own), list(own.values()))
        done = len(averaged([*own.values()]))
        whole = everything or done >= self.seeds[group.key] > 0
        parent = store.bring_in_line(group, None, Summary(uri="")) if whole else store.exists(group)
        for cell, view in views.items():
            store.bring_in_line(view, parent, summary)
            (self.running.add if view.status == "RUNNING" else self.running.discard)(cell)
        return [_span(view) for view in views.values()]

    def _read(self, cell: Cell, summary: Summary) -> RunView | None:
        """One cell; a record that cannot be read is named and left out, the others are sent."""
        try:
            view = read_cell(self.paths.folder, self.study, cell, self.networks.get(cell))
        except UserError as error:
            summary.problems.append(str(error))
            return None
        summary.cells += view is not None
        return view

    def _study_view(self, views: list[RunView]) -> RunView:
        """The run with the study's tables, figures, claims and report."""
        tags = {CELL_TAG: "study", "study": self.study, "mlflow.source.name": "tnfdt"}
        times = span(views)
        return RunView(
            key="study",
            name=f"study {self.study}",
            **times | {"start": times["start"] - 1},  # so that it is listed first
            tags=tags | _claims(self.paths),
            artifacts=tuple(_products(self.paths)),
        )

    def _write_runs(self, store: Store) -> None:
        """Note which run is whose, for those who cannot ask the store."""
        file = io.StringIO()
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(COLUMNS)
        where = (store.experiment.experiment_id, mask_uri(self.uri))
        for cell in self._begun():
            if found := store.index.get(cell.path):
                rows.writerow((*cell, found.run_id, *where))
        old = self.paths.runs.read_text() if self.paths.runs.exists() else ""
        if file.getvalue() != old:
            with atomic_path(self.paths.runs) as temporary:
                temporary.write_text(file.getvalue(), encoding="utf-8")


def _stat(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


def _span(view: RunView) -> RunView:
    return RunView(key=view.key, name="", start=view.start, end=view.end)


def _claims(paths: StudyPaths) -> dict[str, str]:
    """The verdicts as the description of the study's run, which MLflow renders."""
    path = paths.claims.with_suffix(".md")
    text = path.read_text(encoding="utf-8")[:_NOTE_LIMIT] if path.exists() else ""
    return {"mlflow.note.content": text} if text else {}


def _products(paths: StudyPaths) -> Iterator[tuple[str, Path]]:
    for folder in (paths.tables, paths.figures):
        files = (path for path in sorted(folder.rglob("*")) if path.is_file())
        yield from ((str(path.parent.relative_to(paths.folder)), path) for path in files)
    if paths.report.exists():
        yield "", paths.report


@contextlib.contextmanager
def _store_errors(uri: str) -> Iterator[None]:
    """What a store can do wrong, in one line."""
    import_mlflow()
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (MlflowException, SQLAlchemyError, OSError, ImportError) as error:
        text = mask_text(str(error), uri)[:300]
        cure = "fix or move it away" if sqlite_path(uri) else "make sure it runs"
        cure = "install that driver" if isinstance(error, ImportError) else cure
        raise UserError(
            f"tracking store {mask_uri(uri)}: {text}; {cure}, then `tnfdt track`"
        ) from error
