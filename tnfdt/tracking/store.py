"""MLflow, spoken to: one experiment per study, one run per cell, brought in line with a view.

What is in the store is fetched before the disk is read, and every number is on disk before it
is sent. So a number that is in the store and not on disk is of an earlier training, and the
run that holds it is replaced: MLflow can add to a run, but not take away.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from filelock import FileLock, Timeout

from tnfdt.tracking import page
from tnfdt.tracking.address import artifact_root, mask_uri, sqlite_path
from tnfdt.tracking.embedded import QUIET
from tnfdt.tracking.view import CELL_TAG, PARENT_TAG, RunView

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Experiment, Run

PARENT = "study"  # the parent's tag tnfdt.cell; a cell's has slashes

Place = tuple[str, int, int]  # key, step, timestamp


@dataclass
class Known:
    """What the store has of one run, kept up to date while it is sent more."""

    run_id: str
    start: int
    status: str
    end: int | None
    params: dict[str, str]
    tags: dict[str, str]
    points: dict[Place, float]
    datasets: set[str]


class Sent(NamedTuple):
    """What it took to bring a run in line."""

    run: Known
    created: bool
    superseded: bool
    points: int


def connect(uri: str, *, patient: bool) -> MlflowClient:
    """MLflow's client; imports mlflow. Impatient: one try of three seconds, as an unreachable
    server would otherwise hold each call for four minutes."""
    tries, seconds = ("2", "30") if patient else ("0", "3")
    limits = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": tries, "MLFLOW_HTTP_REQUEST_TIMEOUT": seconds}
    os.environ.update(QUIET)
    for key, value in limits.items():
        os.environ.setdefault(key, value)
    warnings.simplefilter("ignore")
    import mlflow

    for name in ("mlflow", "alembic", "sqlalchemy", "urllib3"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    return mlflow.MlflowClient(uri)


class Store:
    """The runs of one study in MLflow. `folder` is the study's, for the lock."""

    def __init__(self, uri: str, study: str, folder: Path, *, patient: bool = False) -> None:
        self.uri, self.study, self.folder = uri, study, folder
        self.client = connect(uri, patient=patient)
        self.experiment = self._experiment()
        self.columns = page.columns_of(self.experiment.tags)
        self.parent_id: str | None = None

    @property
    def shown_uri(self) -> str:
        return mask_uri(self.uri)

    def find(self, key: str) -> Known | None:
        """The one run of a cell with all its points; runs that a race left over are deleted."""
        runs = self.runs(key)
        return self.fetch(runs[0]) if runs else None

    def runs(self, key: str | None = None) -> list[Run]:
        """The runs with a tag tnfdt.cell, or those of one cell, of which only one remains."""
        query = f"tags.`{CELL_TAG}` " + (f"= '{key}'" if key else "!= ''")
        runs: list[Run] = []
        token = None
        while True:
            found = self.client.search_runs(
                [self.experiment.experiment_id], query, page_token=token
            )
            runs += found
            token = found.token
            if not token:
                return self._without_duplicates(runs)

    def _without_duplicates(self, runs: Sequence[Run]) -> list[Run]:
        """The oldest run of each cell: all processes agree on which that is."""
        kept: dict[str, Run] = {}
        for run in sorted(runs, key=lambda run: (run.info.start_time, run.info.run_id)):
            if kept.setdefault(run.data.tags[CELL_TAG], run) is not run:
                self.client.delete_run(run.info.run_id)
        return list(kept.values())

    def fetch(self, run: Run, *, points: bool = True) -> Known:
        """All that the store has of a run."""
        inputs = run.inputs.dataset_inputs if run.inputs else []
        return Known(
            run_id=run.info.run_id,
            start=run.info.start_time,
            status=run.info.status,
            end=run.info.end_time,
            params=dict(run.data.params),
            tags=dict(run.data.tags),
            points=dict(self._points(run)) if points else {},
            datasets={item.dataset.digest for item in inputs},
        )

    def _points(self, run: Run) -> Iterator[tuple[Place, float]]:
        for key in run.data.metrics:
            for metric in self.client.get_metric_history(run.info.run_id, key):
                yield (key, metric.step, metric.timestamp), metric.value

    def bring_in_line(self, view: RunView, known: Known | None) -> Sent:
        """Make the run of `view` say what the view says; `known` was fetched before it."""
        superseded = known is not None and contradicts(view, known)
        if known and superseded:
            self.client.delete_run(known.run_id)
        run = known if known and not superseded else self._create(view)
        self._send_labels(view, run)
        sent = self._send_points(view, run)
        self._send_dataset(view, run)
        self._send_status(view, run)
        self._show_columns(view)
        return Sent(run, created=run is not known, superseded=superseded, points=sent)

    def _create(self, view: RunView) -> Known:
        tags = view.tags | self._parent_tag(view)
        with self._lock():
            runs = self.runs(view.key)
            if not runs:
                number = self.experiment.experiment_id
                self.client.create_run(number, view.start, tags, view.name)
                runs = self.runs(view.key)
        return self.fetch(runs[0])

    def _parent_tag(self, view: RunView) -> dict[str, str]:
        if view.key == PARENT:
            return {}
        if self.parent_id is None:
            parent = RunView(
                key=PARENT, name=f"study {self.study}", start=view.start, tags=self.parent_tags()
            )
            known = self.find(PARENT) or self._create(parent)
            self.parent_id = known.run_id
        return {PARENT_TAG: self.parent_id}

    def parent_tags(self) -> dict[str, str]:
        return {CELL_TAG: PARENT, "study": self.study, "mlflow.source.name": "tnfdt"}

    def _send_labels(self, view: RunView, run: Known) -> None:
        """Parameters and tags that the run does not have yet."""
        from mlflow.entities import Param, RunTag

        wanted = view.tags | self._parent_tag(view)
        params = {key: view.params[key] for key in view.params if key not in run.params}
        tags = {key: wanted[key] for key in wanted if run.tags.get(key) != wanted[key]}
        for part in chunks([Param(*item) for item in params.items()], 100):
            self.client.log_batch(run.run_id, params=part)
        for part in chunks([RunTag(*item) for item in tags.items()], 100):
            self.client.log_batch(run.run_id, tags=part)
        run.params |= params
        run.tags |= tags

    def _send_points(self, view: RunView, run: Known) -> int:
        """Points that the run does not have yet. MLflow stores a point that is sent twice
        once, so a call that was cut off is simply made again."""
        from mlflow.entities import Metric

        missing = {(p.key, p.step, p.timestamp): p.value for p in view.points}
        missing = {place: missing[place] for place in missing if place not in run.points}
        for part in chunks(list(missing.items()), 1000):
            metrics = [Metric(key, value, time, step) for (key, step, time), value in part]
            self.client.log_batch(run.run_id, metrics=metrics)
            run.points.update(part)
        return len(missing)

    def _send_dataset(self, view: RunView, run: Known) -> None:
        from mlflow.entities import Dataset, DatasetInput, InputTag

        if view.dataset is None or view.dataset[1][:36] in run.datasets:
            return
        name, digest = view.dataset[0], view.dataset[1][:36]  # as long as MLflow takes
        dataset = Dataset(name, digest, "local", f'{{"path": "{self.study}/data/{name}"}}')
        context = [InputTag("mlflow.data.context", "training")]
        self.client.log_inputs(run.run_id, [DatasetInput(dataset, context)])
        run.datasets.add(digest)

    def _send_status(self, view: RunView, run: Known) -> None:
        """The end of a run is the record's, so that a store made later shows it too."""
        if (run.status, run.end) == (view.status, view.end):
            return
        if view.end is not None:
            self.client.set_terminated(run.run_id, view.status, view.end)
        elif run.status != view.status:
            self.client.update_run(run.run_id, status=view.status)
        run.status, run.end = view.status, view.end

    def _show_columns(self, view: RunView) -> None:
        """Let MLflow's table show the accuracies there are, without the user choosing them."""
        wanted = page.columns(self.columns, (point.key for point in view.points))
        if wanted != self.columns:
            number, tag = self.experiment.experiment_id, page.view_tag(wanted)
            self.client.set_experiment_tag(number, *tag)
            self.columns = wanted

    def _experiment(self) -> Experiment:
        name = f"tnfdt/{self.study}"
        found = self.client.get_experiment_by_name(name)
        if found is None:
            with self._lock():
                found = self.client.get_experiment_by_name(name) or self._new_experiment(name)
        if found.lifecycle_stage == "deleted":
            self.client.restore_experiment(found.experiment_id)
        return found

    def _new_experiment(self, name: str) -> Experiment:
        path = sqlite_path(self.uri)
        where = str(artifact_root(path)) if path else None
        number = self.client.create_experiment(name, where, page.experiment_tags(self.study))
        return self.client.get_experiment(number)

    @contextlib.contextmanager
    def _lock(self) -> Iterator[None]:
        """Look and create as one step. Where folders are not shared two processes can still
        create the same; `_without_duplicates` then settles it."""
        lock = FileLock(self.folder / ".mlflow.lock", timeout=10)
        with contextlib.suppress(Timeout, OSError):
            lock.acquire()
        try:
            yield
        finally:
            lock.release()


def contradicts(view: RunView, known: Known) -> bool:
    """Whether the run holds anything that the disk does not: an earlier training's."""
    if view.key == PARENT:
        return False
    model = known.tags.get("model_sha256"), view.tags.get("model_sha256")
    written = {(point.key, point.step, point.timestamp): point.value for point in view.points}
    return (
        known.start != view.start
        or (None not in model and model[0] != model[1])
        or any(known.params.get(key, value) != value for key, value in view.params.items())
        or not all(_is_in(written, item) for item in known.points.items())
    )


def _is_in(written: dict[Place, float], item: tuple[Place, float]) -> bool:
    place, value = item
    if place[0].startswith("system/"):  # samples may be deleted from disk, they are no result
        return True
    return place in written and math.isclose(written[place], value, rel_tol=1e-9)


def chunks(items: Sequence[Any], size: int) -> Iterator[list[Any]]:
    return (list(items[i : i + size]) for i in range(0, len(items), size))
