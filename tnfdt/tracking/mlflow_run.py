"""One run of MLflow: whether it is of the training on disk, and what is sent to it.

Every number is on disk before it is sent. So a number that is in the store and not on disk is
of an earlier training, and the run that holds it is replaced: MLflow can add to a run, but not
take away.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tnfdt.tracking.view import DIGEST_TAG, RunView

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

PARENT_TAG = "mlflow.parentRunId"


def contradicts(view: RunView, run: Run) -> bool:
    """Whether the run holds anything that the disk does not: an earlier training's or attack's,
    also one with the same values, which has other times. Of a metric the last point is compared;
    MLflow gives it with the run, the others one request a metric."""
    model = run.data.tags.get("model_sha256"), view.tags.get("model_sha256")
    written: dict[tuple[str, int, int], list[float]] = defaultdict(list)
    for point in view.points:
        written[point.key, point.step, point.timestamp].append(point.value)
    return (
        run.info.start_time != view.start
        or (None not in model and model[0] != model[1])
        or not run.data.params.items() <= view.params.items()
        or not all(
            _is_one_of(last.value, written[last.key, last.step, last.timestamp])
            for last in run.data.to_proto().metrics
        )
    )


def _is_one_of(value: float, values: list[float]) -> bool:
    return any(math.isclose(value, other, rel_tol=1e-9) for other in values)


def parent_tag(parent: str | None) -> dict[str, str]:
    return {PARENT_TAG: parent} if parent else {}


def send(client: MlflowClient, view: RunView, run: Run, parent: str | None) -> None:
    """Parameters and tags that the run lacks, and all points: MLflow stores a point that is sent
    twice once, so a call that was cut off is simply made again."""
    from mlflow.entities import Metric, Param, RunTag

    number, known = run.info.run_id, run.data
    wanted = view.tags | parent_tag(parent)
    params = [Param(*item) for item in view.params.items() if item[0] not in known.params]
    tags = [RunTag(*item) for item in wanted.items() if known.tags.get(item[0]) != item[1]]
    points = [Metric(key, value, time, step) for key, step, time, value in view.points]
    for part in chunks(params, 100):
        client.log_batch(number, params=part)
    for part in chunks(tags, 100):
        client.log_batch(number, tags=part)
    for part in chunks(points, 1000):
        client.log_batch(number, metrics=part)
    _send_dataset(client, view, run)
    _send_status(client, view, run)


def _send_dataset(client: MlflowClient, view: RunView, run: Run) -> None:
    from mlflow.entities import Dataset, DatasetInput, InputTag

    if view.dataset is None or (run.inputs and run.inputs.dataset_inputs):
        return
    name, digest = view.dataset[0], view.dataset[1][:36]  # as long as MLflow takes
    dataset = Dataset(name, digest, "local", f'{{"path": "data/{name}"}}')
    context = [InputTag("mlflow.data.context", "training")]
    client.log_inputs(run.info.run_id, [DatasetInput(dataset, context)])


def _send_status(client: MlflowClient, view: RunView, run: Run) -> None:
    """The end of a run is the record's, so that a store made later shows it too."""
    if (run.info.status, run.info.end_time) == (view.status, view.end):
        return
    if view.end is not None:
        client.set_terminated(run.info.run_id, view.status, view.end)
    elif run.info.status != view.status:
        client.update_run(run.info.run_id, status=view.status)


def send_artifacts(client: MlflowClient, view: RunView, run_id: str, digest: str) -> None:
    """The files of a run, and then the mark that all is there."""
    for where, path in view.artifacts:
        client.log_artifact(run_id, str(path), where or None)
    client.set_tag(run_id, DIGEST_TAG, digest)


def chunks(items: Sequence[Any], size: int) -> Iterator[list[Any]]:
    return (list(items[i : i + size]) for i in range(0, len(items), size))
