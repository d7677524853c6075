"""One run of MLflow: what it holds, and what is sent to it.

Every number is on disk before it is sent. So a number that is in the store and not on disk is
of an earlier training, and the run that holds it is replaced: MLflow can add to a run, but not
take away.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tnfdt.tracking.points import Point
from tnfdt.tracking.view import DIGEST_TAG, RunView

if TYPE_CHECKING:
    from mlflow import MlflowClient

PARENT_TAG = "mlflow.parentRunId"

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


def fetch(client: MlflowClient, run_id: str) -> Known:
    """All that the store has of a run."""
    run = client.get_run(run_id)
    inputs = run.inputs.dataset_inputs if run.inputs else []
    histories = (client.get_metric_history(run_id, key) for key in run.data.metrics)
    points = [point for history in histories for point in history]
    return Known(
        run_id=run_id,
        start=run.info.start_time,
        status=run.info.status,
        end=run.info.end_time,
        params=dict(run.data.params),
        tags=dict(run.data.tags),
        points={(point.key, point.step, point.timestamp): point.value for point in points},
        datasets={item.dataset.digest for item in inputs},
    )


def contradicts(view: RunView, known: Known) -> bool:
    """Whether the run holds anything that the disk does not: an earlier training's."""
    model = known.tags.get("model_sha256"), view.tags.get("model_sha256")
    written = _placed(view.points)
    return (
        known.start != view.start
        or (None not in model and model[0] != model[1])
        or not known.params.items() <= view.params.items()
        or not all(_is_in(written, *item) for item in known.points.items())
    )


def _placed(points: Sequence[Point]) -> dict[Place, float]:
    return {(point.key, point.step, point.timestamp): point.value for point in points}


def _is_in(written: dict[Place, float], place: Place, value: float) -> bool:
    return place in written and math.isclose(written[place], value, rel_tol=1e-9)


def send(client: MlflowClient, view: RunView, run: Known, parent: str | None) -> int:
    """Send what the run lacks of its view; returns the number of points."""
    _send_labels(client, view, run, parent)
    sent = _send_points(client, view, run)
    _send_dataset(client, view, run)
    _send_status(client, view, run)
    return sent


def parent_tag(parent: str | None) -> dict[str, str]:
    return {PARENT_TAG: parent} if parent else {}


def _send_labels(client: MlflowClient, view: RunView, run: Known, parent: str | None) -> None:
    """Parameters and tags that the run does not have yet."""
    from mlflow.entities import Param, RunTag

    wanted = view.tags | parent_tag(parent)
    params = {key: view.params[key] for key in view.params if key not in run.params}
    tags = {key: wanted[key] for key in wanted if run.tags.get(key) != wanted[key]}
    for part in chunks([Param(*item) for item in params.items()], 100):
        client.log_batch(run.run_id, params=part)
    for part in chunks([RunTag(*item) for item in tags.items()], 100):
        client.log_batch(run.run_id, tags=part)
    run.params |= params
    run.tags |= tags


def _send_points(client: MlflowClient, view: RunView, run: Known) -> int:
    """Points that the run does not have yet. MLflow stores a point that is sent twice once, so
    a call that was cut off is simply made again."""
    from mlflow.entities import Metric

    missing = [item for item in _placed(view.points).items() if item[0] not in run.points]
    for part in chunks(missing, 1000):
        metrics = [Metric(key, value, time, step) for (key, step, time), value in part]
        client.log_batch(run.run_id, metrics=metrics)
        run.points.update(part)
    return len(missing)


def _send_dataset(client: MlflowClient, view: RunView, run: Known) -> None:
    from mlflow.entities import Dataset, DatasetInput, InputTag

    if view.dataset is None or view.dataset[1][:36] in run.datasets:
        return
    name, digest = view.dataset[0], view.dataset[1][:36]  # as long as MLflow takes
    dataset = Dataset(name, digest, "local", f'{{"path": "data/{name}"}}')
    context = [InputTag("mlflow.data.context", "training")]
    client.log_inputs(run.run_id, [DatasetInput(dataset, context)])
    run.datasets.add(digest)


def _send_status(client: MlflowClient, view: RunView, run: Known) -> None:
    """The end of a run is the record's, so that a store made later shows it too."""
    if (run.status, run.end) == (view.status, view.end):
        return
    if view.end is not None:
        client.set_terminated(run.run_id, view.status, view.end)
    elif run.status != view.status:
        client.update_run(run.run_id, status=view.status)
    run.status, run.end = view.status, view.end


def send_artifacts(client: MlflowClient, view: RunView, run: Known, digest: str) -> None:
    """The files of a run, and then the mark that all is there."""
    for where, path in view.artifacts:
        client.log_artifact(run.run_id, str(path), where or None)
    client.set_tag(run.run_id, DIGEST_TAG, digest)


def chunks(items: Sequence[Any], size: int) -> Iterator[list[Any]]:
    return (list(items[i : i + size]) for i in range(0, len(items), size))
