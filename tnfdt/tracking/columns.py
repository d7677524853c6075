"""How a study looks on MLflow's page: which columns, in which order, under which words.

MLflow shows no metric in its table until a user picks it. It also stores "shared views" as a
tag of the experiment, in plain JSON, and opens one by its key: so one is written for the user.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from tnfdt.tracking.groups import SD

VIEW = "tnfdt"  # the key under which a study's columns are stored with its experiment
_TAG = f"mlflow.sharedViewState.{VIEW}"
_NAME, _SEEDS, _AUDIT = "attributes.`Run Name`", "tags.`seeds`", "tags.`audit`"


def is_shown(key: str) -> bool:
    """Whether a metric is a column of the table: accuracy always is."""
    return key.startswith("robust/")


def view_tag(robust: Iterable[str] = ()) -> tuple[str, str]:
    """The tag of an experiment that holds the view: accuracy, then robust accuracy by falling
    epsilon, each with its SD over seeds. Sorted by date, and by nothing else, MLflow shows groups
    and puts their seeds behind them."""
    falling = sorted(robust, key=lambda key: -float(key.removeprefix("robust/eps")))
    shown = [f"metrics.`{prefix}{key}`" for key in ("accuracy", *falling) for prefix in ("", SD)]
    state: dict[str, Any] = {
        "orderByKey": "attributes.start_time",
        "orderByAsc": True,
        "selectedColumns": [_SEEDS, *shown, _AUDIT],
        "columnOrder": [_NAME, _SEEDS, *shown, _AUDIT],
        "columnWidths": {_NAME: 280, **dict.fromkeys([_SEEDS, *shown, _AUDIT], 110)},
        "runsHiddenMode": "SHOW_ALL",
    }
    return _TAG, json.dumps(state)


def experiment_tags(study: str) -> dict[str, str]:
    note = (
        f"Study **{study}**: one run per group (dataset · model · method) with the mean over its "
        "finished seeds and their SD (`sd/…`), and behind it one run per seed, live while it "
        "trains. `accuracy` is on the test images; `robust/eps…` is the paper's robust accuracy "
        f"(Eq. 7). The run *study {study}* has the tables, figures and claims. "
        "Records on disk are the truth: `tnfdt track` brings this page in line with them."
    )
    tags = {"mlflow.note.content": note, "mlflow.experimentKind": "custom_model_development"}
    return tags | dict([view_tag()])


def runs_page(experiment_id: str) -> str:
    """The table of an experiment's runs, with the columns of the view."""
    return (
        f"#/experiments/{experiment_id}/runs?viewStateShareKey={VIEW}&workflowType=machine_learning"
    )
