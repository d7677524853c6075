"""Records: what a result is, and the check that it is what its path says.

A record is JSON with the identity of its cell, its metrics, the exact config slice, the
interpretation, and the commit, versions and hardware it was made with.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from tnfdt.files.atomic import read_json
from tnfdt.study.paths import Cell
from tnfdt.study.schema import UserError, shown

SCHEMA = 1
Record = dict[str, Any]

# What a training's config says of the machine that trained, and what a training adds to it:
# neither makes it a training with other settings.
UNCOMPARED = ("precision", "compile", "num_classes", "smoothing")

_IDENTITY = ("study", "dataset", "model", "method", "seed")


def identity(study: str, cell: Cell) -> Record:
    """The keys that say which cell a record is of."""
    return dict(zip(_IDENTITY, (study, *cell), strict=True))


def cell_of(record: Record) -> Cell:
    """The cell that a record is of, from `identity`."""
    return Cell(*(record[key] for key in Cell._fields))


def read_record(path: Path, *, stage: str, study: str, cell: Cell) -> Record:
    """Read a record and make sure it is what its path says it is."""
    record = read_json(path)
    if not isinstance(record, dict):
        raise UserError(f"{path} is not a record (a JSON object); delete it and run again")
    expected = {"schema": SCHEMA, "stage": stage, **identity(study, cell)}
    for key, value in expected.items():
        if record.get(key) != value:
            raise UserError(
                f"{path}: {key} is {shown(record.get(key))}, expected {value!r}; "
                "move it away or delete it and run again"
            )
    if not isinstance(record.get("config", {}), dict):
        raise UserError(f"{path}: 'config' is no mapping; delete it and run again")
    _check_metrics(path, record.get("metrics"))
    return record


def require(path: Path, record: Record, *keys: str) -> None:
    """Raise unless the record has all these keys."""
    for key in keys:
        if record.get(key) is None:
            raise UserError(f"{path}: {key!r} is missing; move it away or delete it and run again")


def _check_metrics(path: Path, metrics: Any) -> None:
    if not isinstance(metrics, dict):
        raise UserError(f"{path}: 'metrics' is missing; delete the file and run again")
    for key, value in metrics.items():
        for number in value if isinstance(value, list) else [value]:
            if number is None or isinstance(number, bool | str):
                continue
            if not is_finite(number):
                raise UserError(
                    f"{path}: metric {key} is {shown(number)}, expected finite numbers; "
                    "delete it and run again"
                )


def is_number(value: Any) -> bool:
    """Whether a value of JSON is a number; true and false are none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_finite(value: Any) -> bool:
    """Whether a value is a number that floating point holds."""
    try:
        return isinstance(value, int | float) and math.isfinite(value)
    except OverflowError:
        return False
