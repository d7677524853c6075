"""What MLflow should show of a cell, read from the files of its stages. Nothing here sends."""

from __future__ import annotations

import csv
import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tnfdt.files import journal
from tnfdt.files.atomic import read_json, sha256_file
from tnfdt.files.records import Record, read_record
from tnfdt.study.names import method_name
from tnfdt.study.paths import Cell
from tnfdt.study.schema import UserError
from tnfdt.tracking import points
from tnfdt.tracking.points import Point, millis

CELL_TAG, DIGEST_TAG, PARENT_TAG = "tnfdt.cell", "tnfdt.digest", "mlflow.parentRunId"

_RESULTS = ("lr", "loss", "soft_cross_entropy", "train_accuracy", "test_accuracy")
_PARAMS = ("config", "interpretation", "commit", "versions", "hardware")
_LABELS: tuple[str, ...] = ("dataset_fingerprint", "model_sha256")
_COLOURS = {  # as in the figures: the same for all seeds of a method
    "vanilla": "#000000",
    "ov": "#E69F00",
    "fdt": "#0072B2",
    "tn": "#009E73",
    "tn_fdt": "#D55E00",
}
_DAMAGE = (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError)
_VALUE_LIMIT = 6000  # characters of a parameter that MLflow stores

Row = journal.Row


@dataclass(frozen=True, kw_only=True)
class RunView:
    """One run as it should be: what `store` brings MLflow in line with."""

    key: str  # the value of its tag tnfdt.cell
    name: str
    start: int  # unix milliseconds, as all times here
    end: int | None = None
    status: str = "RUNNING"
    params: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    points: tuple[Point, ...] = ()
    dataset: tuple[str, str] | None = None  # name, fingerprint
    artifacts: tuple[tuple[str, Path], ...] = ()  # folder in the run's artifacts, file

    @property
    def complete(self) -> bool:
        """Whether the training has its record: an unfinished run is never skipped."""
        return self.status == "FINISHED"

    def digest(self) -> str:
        """Equal for equal views: a run that has it as a tag needs nothing sent."""
        files = [(folder, path.name, sha256_file(path)) for folder, path in self.artifacts]
        facts = [self.name, self.start, self.end, self.status, self.params, self.tags]
        text = json.dumps([*facts, self.points, self.dataset, files], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, kw_only=True)
class _Files:
    """The files of one cell; `record` is empty until its training is done."""

    study: str
    cell: Cell
    train: Path
    log: journal.Contents | None
    record: Record
    rows: list[Row]
    attacks: list[Record]
    audits: list[Record]
    artifacts: tuple[tuple[str, Path], ...]


def read_cell(folder: Path, study: str, cell: Cell) -> RunView | None:
    """The run of a cell from `folder`, the study's; None if its training has not begun."""
    try:
        files = _read(folder, study, cell)
        return _view(files) if files.log or files.record else None
    except (*_DAMAGE, csv.Error) as error:
        raise UserError(
            f"{folder}: the records of {cell.path} are not as this version writes them "
            f"({type(error).__name__}: {error}); delete them and run again"
        ) from error


def _view(files: _Files) -> RunView:
    start = millis(files.log.start if files.log else files.record["started"])
    end = max([start, *(millis(row["time"]) for row in files.rows)])
    status = "FINISHED" if files.record else (files.log and files.log.end) or "RUNNING"
    tags = _tags(files)
    fingerprint = tags.get("dataset_fingerprint")
    return RunView(
        key=files.cell.path,
        name=run_name(files.cell),
        start=start,
        end=None if status == "RUNNING" else end,
        status=status,
        params=_identity(files.cell) | _params(files),
        tags=tags,
        points=_points(files, start, end),
        dataset=(files.cell.dataset, fingerprint) if fingerprint else None,
        artifacts=files.artifacts,
    )


def run_name(cell: Cell) -> str:
    """A cell as it reads in MLflow's table: 'c10 · resnet34 · TN & FDT · seed 0'."""
    return f"{cell.dataset} · {cell.model} · {method_name(cell.method)} · seed {cell.seed}"


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Nested settings as text by dotted key, in the characters that MLflow allows."""
    flat: dict[str, str] = {}
    for key, value in values.items():
        name = prefix + points.allowed(str(key))
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{name}.")
        else:
            text = value if isinstance(value, str) else json.dumps(value, default=str)
            flat[name] = text[:_VALUE_LIMIT]
    return flat


def flatten_params(values: Mapping[str, Any]) -> dict[str, str]:
    """What a training is given, or its record: the config slice stands without a prefix."""
    rest = {key: value for key, value in values.items() if key != "config"}
    return flatten(values.get("config", {})) | flatten(rest)


def _read(folder: Path, study: str, cell: Cell) -> _Files:
    train = folder / "train" / cell.path
    log = journal.read(train)
    record, history = _finished(train, study, cell, log)
    if log and not all(_agree(log.rows[key], history[key]) for key in log.rows if key in history):
        log = None  # of another training, which was not tracked to its end
    attack, audit = folder / "attack" / cell.path, folder / "audit" / cell.path
    own = [train / "record.json", train / "history.csv"]
    found = {"": own, "attack": attack.glob("eps*.json"), "audit": audit.glob("*.json")}
    files = [(where, path) for where, paths in found.items() for path in sorted(paths)]
    return _Files(
        study=study,
        cell=cell,
        train=train,
        log=log,
        record=record,
        rows=_rows(log, record, history),
        attacks=_of_model(record, attack.glob("eps*.json")),
        audits=_of_model(record, audit.glob("*.json")),
        artifacts=tuple(item for item in files if item[1].exists()) if record else (),
    )


def _finished(
    train: Path, study: str, cell: Cell, log: journal.Contents | None
) -> tuple[Record, dict[int, Row]]:
    """The record and the epochs of the training that the journal is of; both empty while it
    runs, also where the record of an earlier training still lies there."""
    path = train / "record.json"
    if not path.exists():
        return {}, {}
    record: Record = read_record(path, stage="train", study=study, cell=cell)
    if log and log.end != "FINISHED" and millis(record["started"]) < millis(log.start):
        return {}, {}
    return record, {int(row["epoch"]): row for row in _history(train / "history.csv")}


def _history(path: Path) -> list[Row]:
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        rows = csv.DictReader(file)
        return [{key: float(text) for key, text in row.items() if text} for row in rows]


def _agree(one: Row, other: Row) -> bool:
    """Whether two rows tell of the same epoch of the same training."""
    pairs = [(one.get(key), other.get(key)) for key in _RESULTS]
    return all(a == b or (a and b and math.isclose(a, b, rel_tol=1e-5)) for a, b in pairs)


def _rows(log: journal.Contents | None, record: Record, history: dict[int, Row]) -> list[Row]:
    """One row per epoch: results from history.csv, times and speeds from the journal. An epoch
    that the journal has not is given a time as if all epochs took equally long."""
    written = log.rows if log else {}
    if not history:
        return list(written.values())
    begin, seconds = millis(record["started"]) / 1000, record["metrics"].get("duration_seconds")
    pace = (seconds or 0) / len(history)
    return [
        {"time": begin + pace * epoch} | row | _without_results(written.get(epoch, {}))
        for epoch, row in sorted(history.items())
    ]


def _without_results(row: Row) -> Row:
    return {key: value for key, value in row.items() if key not in _RESULTS}


def _of_model(trained: Record, paths: Iterable[Path]) -> list[Record]:
    """The records of a later stage that are of the weights there are now."""
    found = [read_json(path) for path in sorted(paths)] if trained else []
    return [record for record in found if record.get("model_sha256") == trained["model_sha256"]]


def _points(files: _Files, start: int, end: int) -> tuple[Point, ...]:
    found = [
        *points.curve_points(files.rows),
        *points.summary_points(files.record, end, len(files.rows)),
        *(point for attack in files.attacks for point in points.attack_points(attack, end)),
        *(point for audit in files.audits for point in points.audit_points(audit, end)),
        *points.system_points(files.train, start),
    ]
    return tuple(dict.fromkeys(point for point in found if math.isfinite(point.value)))


def _params(files: _Files) -> dict[str, str]:
    known = {key: files.record[key] for key in _PARAMS if key in files.record}
    return (files.log.params if files.log else {}) | flatten_params(known)


def _identity(cell: Cell) -> dict[str, str]:
    return {key: str(value) for key, value in cell._asdict().items()}


def _tags(files: _Files) -> dict[str, str]:
    record, given = files.record, files.log.tags if files.log else {}
    known = {key: str(record[key]) for key in _LABELS if key in record}
    commit = record.get("commit") or (files.log.params.get("commit") if files.log else None)
    colour = _COLOURS.get(files.cell.method)
    badges = [str(audit["badge"]) for audit in files.audits if audit.get("badge")]
    return {
        **given,
        **_identity(files.cell),
        **known,
        **({"audit": ", ".join(badges)} if badges else {}),
        **({"mlflow.source.git.commit": commit.partition("+")[0]} if commit else {}),
        **({"mlflow.runColor": colour} if colour else {}),
        "study": files.study,
        CELL_TAG: files.cell.path,
        "mlflow.source.name": f"tnfdt train {files.cell.path}",
        "mlflow.source.type": "LOCAL",
    }
