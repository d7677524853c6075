"""The runs of one study in MLflow: one experiment, and an index of which run is whose."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from filelock import FileLock, Timeout

from tnfdt.study.paths import StudyPaths
from tnfdt.tracking import columns
from tnfdt.tracking.address import artifact_root, sqlite_path
from tnfdt.tracking.mlflow_run import PARENT_TAG, contradicts, parent_tag, send, send_artifacts
from tnfdt.tracking.sqlite_store import import_mlflow
from tnfdt.tracking.view import CELL_TAG, DIGEST_TAG, RunView

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Experiment, Run

_HTTP = "MLFLOW_HTTP_REQUEST_"
_GIVEN = frozenset(key for key in os.environ if key.startswith(_HTTP))  # the user's own


class KnownRun(NamedTuple):
    """What is remembered of every run: whether it needs anything sent."""

    run_id: str
    digest: str | None
    parent: str | None


@dataclass(kw_only=True)
class Summary:
    """What `track` found and did."""

    uri: str
    cells: int = 0
    created: int = 0
    updated: int = 0
    superseded: int = 0
    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        done = f"{self.created} runs new, {self.updated} completed, {self.superseded} replaced"
        sent = self.created or self.updated or self.superseded
        text = f"{self.cells} cells in {self.uri}: {done if sent else 'all is there'}"
        return "\n".join([text, *(f"left out: {problem}" for problem in self.problems)])


def limit_requests(*, seconds: int, retries: int) -> None:
    """How long a request to a server may take; MLflow alone would try for many minutes."""
    limits = {f"{_HTTP}TIMEOUT": seconds, f"{_HTTP}MAX_RETRIES": retries}
    os.environ.update({key: str(limits[key]) for key in limits if key not in _GIVEN})


class Store:
    """The runs of one study in MLflow. `folder` is the study's, for the lock."""

    def __init__(self, uri: str, study: str, folder: Path) -> None:
        self.uri, self.study, self.folder = uri, study, folder
        limit_requests(seconds=8, retries=0)  # one that never answers is found out soon
        self.client: MlflowClient = import_mlflow().MlflowClient(uri)
        self.experiment = self._experiment()
        limit_requests(seconds=15, retries=1)  # one that has answered may be busy
        self.shown: set[str] = set()  # metrics that are columns of MLflow's table
        self.index: dict[str, KnownRun] = {}
        self.refresh()

    def refresh(self) -> None:
        """Look again at which runs there are."""
        self.index = {run.data.tags[CELL_TAG]: _found(run) for run in self._runs()}

    def _runs(self) -> list[Run]:
        """The oldest run of each key; runs that a race left over are deleted."""
        found: list[Run] = []
        token = None
        while token != "":
            part = self.client.search_runs(
                [self.experiment.experiment_id], f"tags.`{CELL_TAG}` != ''", page_token=token
            )
            found += part
            token = part.token or ""
        kept: dict[str, Run] = {}
        for run in sorted(found, key=lambda run: (run.info.start_time, run.info.run_id)):
            if kept.setdefault(run.data.tags[CELL_TAG], run) is not run:
                self.client.delete_run(run.info.run_id)
        return list(kept.values())

    def exists(self, view: RunView) -> str:
        """The id of the view's run, created if need be; nothing else is sent."""
        found = self.index.get(view.key)
        return found.run_id if found else self._create(view, None).info.run_id

    def bring_in_line(self, view: RunView, parent: str | None, summary: Summary) -> str:
        """Make the run of `view` say what the view says; returns its id."""
        self.shown |= {point.key for point in view.points if columns.is_shown(point.key)}
        found, digest = self.index.get(view.key), view.digest()
        if found and (found.digest, found.parent) == (digest, parent):
            return found.run_id
        run = self._kept(view, found.run_id, summary) if found else None
        summary.created += found is None
        summary.updated += run is not None
        run = run or self._create(view, parent)
        send(self.client, view, run, parent)
        run_id: str = run.info.run_id
        if view.complete:
            send_artifacts(self.client, view, run_id, digest)
        self.index[view.key] = KnownRun(run_id, digest if view.complete else None, parent)
        return run_id

    def _kept(self, view: RunView, run_id: str, summary: Summary) -> Run | None:
        """The run that is there, or None once it is deleted as that of an earlier training."""
        run = self.client.get_run(run_id)
        if not contradicts(view, run):
            return run
        self.client.delete_run(run_id)
        summary.superseded += 1
        return None

    def _create(self, view: RunView, parent: str | None) -> Run:
        tags, number = view.tags | parent_tag(parent), self.experiment.experiment_id
        run = self.client.create_run(number, view.start, tags, view.name)
        self.index[view.key] = KnownRun(run.info.run_id, None, parent)
        return run

    def show_columns(self) -> None:
        """Let MLflow's table show the accuracies there are, without the user choosing them."""
        key, text = columns.view_tag(self.shown)
        if self.experiment.tags.get(key) != text:
            self.client.set_experiment_tag(self.experiment.experiment_id, key, text)
            self.experiment = self.client.get_experiment(self.experiment.experiment_id)

    def _experiment(self) -> Experiment:
        name = f"tnfdt/{self.study}"
        with self.lock():
            found = self.client.get_experiment_by_name(name) or self._new_experiment(name)
        if found.lifecycle_stage == "deleted":
            self.client.restore_experiment(found.experiment_id)
        return found

    def _new_experiment(self, name: str) -> Experiment:
        path = sqlite_path(self.uri)
        where = str(artifact_root(path)) if path else None
        number = self.client.create_experiment(name, where, columns.experiment_tags(self.study))
        return self.client.get_experiment(number)

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """One process at a time brings a study in line. Where folders are not shared, two can
        create the same run; `refresh` then settles it."""
        lock = FileLock(StudyPaths(self.folder).tracking_lock, timeout=30)
        with contextlib.suppress(Timeout, OSError):
            lock.acquire()
        try:
            yield
        finally:
            lock.release()


def _found(run: Run) -> KnownRun:
    tags = run.data.tags
    return KnownRun(run.info.run_id, tags.get(DIGEST_TAG), tags.get(PARENT_TAG))
