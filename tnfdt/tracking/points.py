"""The numbers of a cell as points of MLflow's metrics.

Keys are chosen for MLflow's own pages: a key without a slash is a training curve, the part
before a slash is the section its chart is in.

    accuracy, loss, …               one point per epoch (accuracy: of the test images)
    summary/…                       one number for the whole training
    clean_accuracy, robust/eps0.1   Eq. 7; robust_last/…, robust_worst/…: last, worst iterate
    robust_curve/eps0.1             one point per PGD step
    audit/…                         the audit
    sd/…                            in the run of a group: the SD over its seeds of any of these
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from tnfdt.files import journal
from tnfdt.files.records import Record, is_number
from tnfdt.study.paths import epsilon_stem

# Columns of history.csv and what they are called in MLflow.
_CURVES = {
    "test_accuracy": "accuracy",
    "train_accuracy": "train_accuracy",
    "loss": "loss",
    "soft_cross_entropy": "soft_cross_entropy",
    "lr": "lr",
    "images_per_second": "images_per_second",
    "seconds": "epoch_seconds",
}
_ATTACK = {
    "robust_accuracy": "robust",
    "last_accuracy": "robust_last",
    "worst_accuracy": "robust_worst",
}


class Point(NamedTuple):
    """One number of a metric; MLflow stores equal points once."""

    key: str
    step: int
    timestamp: int  # unix milliseconds
    value: float


def millis(time: Any) -> int:
    """Unix milliseconds of a time given in unix seconds or in ISO 8601."""
    seconds = datetime.fromisoformat(time).timestamp() if isinstance(time, str) else float(time)
    return round(1000 * seconds)


def allowed(key: str) -> str:
    """A key in the characters that MLflow allows."""
    return re.sub(r"[^\w.\-/: ]", "_", key)


def numbers(values: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, float]]:
    """Every number in nested values, by slashed key; lists are left out."""
    for key, value in values.items():
        name = prefix + allowed(str(key))
        if isinstance(value, Mapping):
            yield from numbers(value, f"{name}/")
        elif is_number(value):
            yield name, float(value)


def curve_points(rows: Iterable[journal.Row]) -> Iterator[Point]:
    for row in rows:
        for column, key in _CURVES.items():
            if row.get(column) is not None:
                yield Point(key, int(row["epoch"]), millis(row["time"]), float(row[column]))


def summary_points(record: Record, time: int, epochs: int) -> Iterator[Point]:
    metrics = record.get("metrics", {})
    for key, value in numbers(metrics, ""):
        if key == "accuracy" and not epochs:  # a record without its history still has a column
            yield Point(key, 0, time, value)
        elif key not in ("accuracy", "loss"):
            yield Point(f"summary/{key}", epochs, time, value)


def attack_points(record: Record, trained: int) -> Iterator[Point]:
    metrics, eps = record["metrics"], epsilon_stem(record["epsilon"])
    begin = millis(record["started"]) if record.get("started") else trained
    length = 1000 * (metrics.get("duration_seconds") or 0)
    curve = metrics.get("curve") or []
    # The same at every epsilon, so it has a time that all attacks share.
    yield Point("clean_accuracy", 0, trained, metrics["clean_accuracy"])
    for key, name in _ATTACK.items():
        yield Point(f"{name}/{eps}", 0, begin + round(length), metrics[key])
    for step, value in enumerate(curve, 1):
        yield Point(f"robust_curve/{eps}", step, begin + round(length * step / len(curve)), value)


def attack_keys(stem: str) -> set[str]:
    """The keys of `attack_points`, given the attack's stem; clean accuracy is of its images."""
    return {"clean_accuracy", *(f"{name}/{stem}" for name in (*_ATTACK.values(), "robust_curve"))}


def audit_points(record: Record, trained: int) -> Iterator[Point]:
    time = millis(record["started"]) if record.get("started") else trained
    for key, value in numbers(record["metrics"], "audit/"):
        yield Point(key, 0, time, value)
