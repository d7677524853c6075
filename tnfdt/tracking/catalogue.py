"""`tnfdt track`: all runs of a study in line with the records on disk; and which run is whose."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tnfdt.files.atomic import read_json, write_json
from tnfdt.study.paths import Cell
from tnfdt.study.schema import UserError
from tnfdt.tracking.address import mask_text, mask_uri, resolve_uri
from tnfdt.tracking.embedded import QUIET, require_store
from tnfdt.tracking.view import CELL_TAG, DIGEST_TAG, RunView, read_cell

if TYPE_CHECKING:
    from mlflow.entities import Run

    from tnfdt.tracking.store import Known, Store

SIDECAR = "mlflow.json"
_NOTE_LIMIT = 8000  # characters of a tag that MLflow stores


@dataclass(kw_only=True)
class Summary:
    """What `track` found and did."""

    uri: str
    cells: int = 0
    created: int = 0
    updated: int = 0
    superseded: int = 0
    points: int = 0
    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        done = f"{self.created} runs new, {self.updated} completed, {self.superseded} replaced"
        text = f"{self.cells} cells in {self.uri}: {done}, {self.points} points sent"
        return "\n".join([text, *(f"left out: {problem}" for problem in self.problems)])


def track(results: Path, study: str, uri: str) -> Summary:
    """Bring MLflow in line with results/{study}: run it as often as you like, also on a store
    that is empty. Runs of cells that are not on this disk are left alone."""
    uri, folder = resolve_uri(uri), results / study
    if not folder.is_dir():
        raise UserError(f"{folder} does not exist; train something first")
    from tnfdt.tracking.store import Store

    require_store(uri)
    summary = Summary(uri=mask_uri(uri))
    with _store_errors(uri):
        store = Store(uri, study, folder, patient=True)
        runs = {run.data.tags[CELL_TAG]: run for run in store.runs()}
        views = [
            view
            for cell in cells_on_disk(folder)
            if (view := _track_cell(store, runs.get(cell.path), cell, summary))
        ]
        if views:
            _track_study(store, views)
    return summary


@contextlib.contextmanager
def _store_errors(uri: str) -> Iterator[None]:
    """What a store can do wrong, in one line."""
    os.environ.update(QUIET)  # before mlflow is imported, for the first time, here
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (MlflowException, SQLAlchemyError, OSError) as error:
        text = mask_text(str(error), uri)[:300]
        raise UserError(
            f"tracking store {mask_uri(uri)}: {text}; make sure it runs, then `tnfdt track`"
        ) from error


def cells_on_disk(folder: Path) -> list[Cell]:
    """The cells that have a folder under train/."""
    found = []
    for path in sorted((folder / "train").glob("*/*/*/seed*")):
        dataset, model, method, seed = path.parts[-4:]
        if seed.removeprefix("seed").isdigit():
            found.append(Cell(dataset, model, method, int(seed.removeprefix("seed"))))
    return found


def _track_cell(store: Store, run: Run | None, cell: Cell, summary: Summary) -> RunView | None:
    """One cell; a record that cannot be read is named and left out, the others are sent."""
    try:
        known = store.fetch(run, points=False) if run else None
        view = read_cell(store.folder, store.study, cell)
        if view is None:
            return None
        summary.cells += 1
        if known is None or known.tags.get(DIGEST_TAG) != view.digest():
            view = _send(store, run, cell, summary) or view
        else:
            write_sidecar(store.folder, cell.path, store, known.run_id)
    except UserError as error:
        summary.problems.append(str(error))
        return None
    return view


def _send(store: Store, run: Run | None, cell: Cell, summary: Summary) -> RunView | None:
    known = store.fetch(run) if run else None
    view = read_cell(store.folder, store.study, cell)
    if view is None:
        return None
    if known and view.status == "RUNNING":  # alive or not, its own process knows better
        view = replace(view, status=known.status, end=known.end)
    sent = store.bring_in_line(view, known)
    if view.complete:
        _send_artifacts(store, view, sent.run)
    write_sidecar(store.folder, cell.path, store, sent.run.run_id)
    summary.created += sent.created and not sent.superseded
    summary.superseded += sent.superseded
    summary.updated += not sent.created
    summary.points += sent.points
    return view


def _send_artifacts(store: Store, view: RunView, run: Known) -> None:
    """The files of a run, a picture of its training, and then the mark that all is there."""
    from tnfdt.tracking.plot import history_plot

    for where, path in view.artifacts:
        store.client.log_artifact(run.run_id, str(path), where or None)
    if (figure := history_plot(view)) is not None:
        store.client.log_figure(run.run_id, figure, "history.png")
    store.client.set_tag(run.run_id, DIGEST_TAG, view.digest())


def _track_study(store: Store, views: list[RunView]) -> None:
    """The parent run: the study's tables, figures, claims and report."""
    from tnfdt.tracking.store import PARENT

    known = store.find(PARENT)
    ends = [view.end for view in views]
    done = None not in ends
    parent = RunView(
        key=PARENT,
        name=f"study {store.study}",
        start=min(view.start for view in views),
        end=max(end for end in ends if end is not None) if done else None,
        status="FINISHED" if done else "RUNNING",
        tags=store.parent_tags() | _claims(store.folder),
        artifacts=tuple(_products(store.folder)),
    )
    run = store.bring_in_line(parent, known).run
    if run.tags.get(DIGEST_TAG) != parent.digest():
        for where, path in parent.artifacts:
            store.client.log_artifact(run.run_id, str(path), where or None)
        store.client.set_tag(run.run_id, DIGEST_TAG, parent.digest())


def _claims(folder: Path) -> dict[str, str]:
    """The verdicts as the description of the parent run, which MLflow renders."""
    path = folder / "tables/claims.md"
    text = path.read_text(encoding="utf-8")[:_NOTE_LIMIT] if path.exists() else ""
    return {"mlflow.note.content": text} if text else {}


def _products(folder: Path) -> Iterator[tuple[str, Path]]:
    for stage in ("tables", "figures"):
        files = (path for path in sorted((folder / stage).rglob("*")) if path.is_file())
        yield from ((str(path.parent.relative_to(folder)), path) for path in files)
    if (folder / "report.html").exists():
        yield "", folder / "report.html"


def write_sidecar(folder: Path, cell: str, store: Store, run_id: str) -> None:
    """Note beside the record which run is the cell's, for those who cannot ask the store."""
    path, number = folder / "train" / cell / SIDECAR, store.experiment.experiment_id
    value = {"tracking_uri": store.shown_uri, "experiment_id": number, "run_id": run_id}
    with contextlib.suppress(UserError):
        if not path.exists() or read_json(path) != value:
            write_json(path, value)


def run_ids(uri: str, study: str) -> dict[str, str]:
    """The run of each cell, by cell path, asked of the store."""
    from tnfdt.tracking.store import connect

    uri = resolve_uri(uri)
    require_store(uri)
    with _store_errors(uri):
        client = connect(uri, patient=True)
        experiment = client.get_experiment_by_name(f"tnfdt/{study}")
        ids = [experiment.experiment_id] if experiment else []
        runs = client.search_runs(ids, f"tags.`{CELL_TAG}` LIKE '%/%'", max_results=50000)
    return {run.data.tags[CELL_TAG]: run.info.run_id for run in runs}


def recorded_run_ids(results: Path, study: str) -> dict[str, str]:
    """The run of each cell, by cell path, as noted beside the records; asks no store."""
    found = {}
    for cell in cells_on_disk(results / study):
        with contextlib.suppress(UserError, KeyError, TypeError):
            found[cell.path] = str(
                read_json(results / study / "train" / cell.path / SIDECAR)["run_id"]
            )
    return found
