"""What MLflow should show of a cell, read from the files of its stages. Nothing here sends."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tnfdt.files import journal
from tnfdt.files.atomic import read_json, sha256_file
from tnfdt.files.history import read_history
from tnfdt.files.journal import Row
from tnfdt.files.locks import ALIVE_SECONDS, is_held
from tnfdt.files.records import UNCOMPARED, Record, read_record
from tnfdt.study.attack_settings import with_precision
from tnfdt.study.names import METHODS, method_name
from tnfdt.study.paths import HISTORY, LOCK, RECORD, Cell, StudyPaths, epsilon_stem
from tnfdt.study.schema import UserError
from tnfdt.tracking import points
from tnfdt.tracking.points import Point, millis

CELL_TAG, DIGEST_TAG = "tnfdt.cell", "tnfdt.digest"

_SOURCE = "mlflow.source.name"
_PARAMS = ("config", "interpretation", *journal.PROVENANCE)
_LABELS = ("dataset_fingerprint", "model_sha256")
_DAMAGE = (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError)
_VALUE_LIMIT = 6000  # characters of a parameter that MLflow stores


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
    recipe: str = ""  # equal for finished trainings that differ in their seed alone
    attacks: dict[str, str] = field(default_factory=dict)  # the settings of each, by its stem

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

    log: journal.Contents | None = None
    record: Record
    rows: list[Row] = field(default_factory=list)
    attacks: list[Record]
    audits: list[Record] = field(default_factory=list)
    artifacts: tuple[tuple[str, Path], ...]
    network: Cell | None = None  # whose training it is, if not its own


def read_cell(folder: Path, study: str, cell: Cell, network: Cell | None = None) -> RunView | None:
    """The run of a cell from `folder`, the study's; None if its training has not begun, or, where
    it has that of another cell, `network`, if that one is not attacked so yet."""
    paths = StudyPaths(folder)
    try:
        files = _shared(paths, study, cell, network) if network else _read(paths, study, cell)
        return _view(files, study, cell, paths) if files.log or files.record else None
    except _DAMAGE as error:
        raise UserError(
            f"{folder}: the records of {cell.path} are not as this version writes them "
            f"({type(error).__name__}: {error}); delete them and run again"
        ) from error


def is_alive(paths: StudyPaths, cell: Cell) -> bool:
    """Whether a process trains the cell: it holds the lock, which may not be seen from another
    machine, or has written to its log lately."""
    if is_held(paths.train(cell) / LOCK):
        return True
    with contextlib.suppress(OSError):
        return time.time() - paths.log("train", cell.path).stat().st_mtime < ALIVE_SECONDS
    return False


def _view(files: _Files, study: str, cell: Cell, paths: StudyPaths) -> RunView:
    """The run; a training that is not alive and has not said how it ended was killed."""
    start = millis(files.log.start if files.log else files.record["started"])
    end = max([start, *(millis(row["time"]) for row in files.rows)])
    status = "FINISHED" if files.record else files.log and files.log.end
    status = status or ("RUNNING" if is_alive(paths, cell) else "KILLED")
    fingerprint = files.record.get("dataset_fingerprint")
    return RunView(
        key=cell.path,
        name=run_name(cell),
        start=start,
        end=None if status == "RUNNING" else end,
        status=status,
        params=flatten(cell._asdict()) | _params(files),
        tags=run_tags(study, cell) | _tags(files),
        points=_points(files, end),
        dataset=(cell.dataset, str(fingerprint)) if fingerprint else None,
        artifacts=files.artifacts,
        recipe=_recipe(files.record),
        attacks=_attack_settings(files.attacks),
    )


def _recipe(record: Record) -> str:
    """What the tables compare of a training, but for the seed."""
    config = record.get("config", {})
    kept = {key: config[key] for key in config if key not in ("seed", *UNCOMPARED)}
    return json.dumps([kept, record.get("dataset_fingerprint")], sort_keys=True, default=str)


def _attack_settings(records: Iterable[Record]) -> dict[str, str]:
    return {
        epsilon_stem(record["epsilon"]): json.dumps(
            with_precision(record.get("config") or {}), sort_keys=True, default=str
        )
        for record in records
    }


def span(views: Iterable[RunView]) -> dict[str, Any]:
    """Start, end and status of a run above others: it goes on while one of them does."""
    starts, ends = zip(*((view.start, view.end) for view in views), strict=True)
    over = None not in ends
    return {
        "start": min(starts),
        "end": max(ends) if over else None,
        "status": "FINISHED" if over else "RUNNING",
    }


def run_name(cell: Cell) -> str:
    """A cell as it reads in MLflow's table: 'c10 · resnet34 · TN & FDT · seed 0'."""
    return f"{group_name(cell)} · seed {cell.seed}"


def group_name(cell: Cell) -> str:
    return f"{cell.dataset} · {cell.model} · {method_name(cell.method)}"


def run_tags(study: str, cell: Cell) -> dict[str, str]:
    """What a run says of itself from the first moment on."""
    known = METHODS.get(cell.method)
    colour = {"mlflow.runColor": known.colour} if known else {}
    source = {_SOURCE: f"tnfdt train {cell.path}", "mlflow.source.type": "LOCAL"}
    return {**flatten(cell._asdict()), **colour, **source, "study": study, CELL_TAG: cell.path}


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
    """What a training is given, or its record: the config slice has no prefix."""
    known = {key: values[key] for key in _PARAMS if key in values and key != "config"}
    return flatten(values.get("config", {})) | flatten(known)


def _read(paths: StudyPaths, study: str, cell: Cell) -> _Files:
    train = paths.train(cell)
    log = journal.read(train)
    record, history = _finished(train, study, cell, log)
    if log and not all(
        journal.agree(log.rows[key], history[key]) for key in log.rows if key in history
    ):
        log = None  # of another training, which was not tracked to its end
    attacks = paths.attack_records(cell)
    audits = [path for path in [paths.audit_record(cell)] if path.is_file()]
    own = [path for path in (train / HISTORY, train / RECORD) if path.exists()]
    files = {"": own, "attack": attacks, "audit": audits} if record else {}
    return _Files(
        log=log,
        record=record,
        rows=_rows(log, record, history),
        attacks=_of_model(record, attacks),
        audits=_of_model(record, audits),
        artifacts=tuple((where, path) for where, found in files.items() for path in found),
    )


def _shared(paths: StudyPaths, study: str, cell: Cell, network: Cell) -> _Files:
    """A cell that has another's training: its attacks, once there are some."""
    train, found = paths.train(network), paths.attack_records(cell)
    trained, _ = _finished(train, study, network, journal.read(train))
    attacks = _of_model(trained, found)
    return _Files(
        record=_lent(trained, attacks[0]) if attacks else {},
        attacks=attacks,
        artifacts=tuple(("attack", path) for path in found),
        network=network,
    )


def _lent(trained: Record, attack: Record) -> Record:
    """A training to the cell that is attacked on it, from when it ends: curves and costs count
    once, and the paper is read as the attack does."""
    metrics, read_as = trained["metrics"], attack.get("interpretation")
    end = millis(trained["started"]) / 1000 + (metrics.get("duration_seconds") or 0)
    changes = {"started": end, "metrics": {"accuracy": metrics["accuracy"]}}
    return trained | changes | ({"interpretation": read_as} if read_as else {})


def _finished(
    train: Path, study: str, cell: Cell, log: journal.Contents | None
) -> tuple[Record, dict[int, Row]]:
    """The record and the epochs of the training that the journal is of; both empty while it
    runs, also where the record of an earlier training still lies there."""
    path = train / RECORD
    if not path.exists():
        return {}, {}
    record = read_record(path, stage="train", study=study, cell=cell)
    if log and log.end != "FINISHED" and millis(record["started"]) < millis(log.start):
        return {}, {}
    columns = read_history(train / HISTORY)
    rows = [
        dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)
    ]
    return record, {int(row["epoch"]): row for row in rows}


def _rows(log: journal.Contents | None, record: Record, history: dict[int, Row]) -> list[Row]:
    """One row per epoch: results from history.csv, times and speeds from the journal. An epoch
    that the journal has not is given a time as if all epochs took equally long."""
    written = log.rows if log else {}
    if not history:
        return list(written.values())
    begin, seconds = millis(record["started"]) / 1000, record["metrics"].get("duration_seconds")
    pace = (seconds or 0) / len(history)
    return [
        {"time": begin + pace * epoch} | written.get(epoch, {}) | row
        for epoch, row in sorted(history.items())
    ]


def _of_model(trained: Record, paths: Iterable[Path]) -> list[Record]:
    """The records of a later stage that are of the weights there are now."""
    found = [read_json(path) for path in paths] if trained else []
    return [record for record in found if record.get("model_sha256") == trained["model_sha256"]]


def _points(files: _Files, end: int) -> tuple[Point, ...]:
    found = [
        *points.curve_points(files.rows),
        *points.summary_points(files.record, end, len(files.rows)),
        *(point for attack in files.attacks for point in points.attack_points(attack, end)),
        *(point for audit in files.audits for point in points.audit_points(audit, end)),
    ]
    return tuple(dict.fromkeys(point for point in found if math.isfinite(point.value)))


def _params(files: _Files) -> dict[str, str]:
    return flatten_params(files.log.params if files.log else {}) | flatten_params(files.record)


def _tags(files: _Files) -> dict[str, str]:
    record = files.record
    known = {key: str(record[key]) for key in _LABELS if key in record}
    commit = record.get("commit") or (files.log.params.get("commit") if files.log else None)
    named = files.network and {"trained_as": files.network.path, _SOURCE: "tnfdt attack"}
    badges = [str(audit["badge"]) for audit in files.audits if audit.get("badge")]
    return {
        **known,
        **(named or {}),
        **({"audit": ", ".join(badges)} if badges else {}),
        **({"mlflow.source.git.commit": commit.partition("+")[0]} if commit else {}),
    }
