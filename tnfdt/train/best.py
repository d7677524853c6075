"""A cell that is another's best epoch: its files are made from what that training kept."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from tnfdt.files.atomic import atomic_path, sha256_file, write_json
from tnfdt.files.clean_answers import read_clean
from tnfdt.files.locks import exclusive
from tnfdt.files.records import Record, identity, read_record, require
from tnfdt.study.paths import (
    BEST_CLEAN,
    BEST_WEIGHTS,
    CLEAN,
    HISTORY,
    LOCK,
    RECORD,
    WEIGHTS,
    Cell,
)
from tnfdt.study.schema import UserError
from tnfdt.study.study import Slice

_FILES = {WEIGHTS: BEST_WEIGHTS, CLEAN: BEST_CLEAN, HISTORY: HISTORY}


def pick(
    *,
    study: str,
    cell: Cell,
    out: Path,
    source: Path,
    source_cell: Cell,
    config: Slice,
    interpretation: dict[str, Any],
) -> Record:
    """Write the files of `cell` from the folder `source` of a finished training."""
    made = read_record(source / RECORD, stage="train", study=study, cell=source_cell)
    require(source / RECORD, made, "config", "best_sha256")
    if sha256_file(source / BEST_WEIGHTS) != made["best_sha256"]:
        raise UserError(f"{source / BEST_WEIGHTS} is not the file of its record.json; train again")
    correct = read_clean(source / BEST_CLEAN)
    record = made | {
        **identity(study, cell),
        "metrics": {**made["metrics"], "accuracy": int(correct.sum()) / len(correct)},
        "config": _as_best(made["config"]),
        "interpretation": interpretation,
        "model_sha256": made["best_sha256"],
        "best_of": source_cell.path,
    }
    del record["best_sha256"]
    _check(source / RECORD, record["config"], config)
    with exclusive(out / LOCK, lambda: None):
        for name, kept in _FILES.items():
            with atomic_path(out / name) as temporary:
                shutil.copyfile(source / kept, temporary)
        write_json(out / RECORD, record)
    return record


def _as_best(config: Slice) -> Slice:
    return {key: config[key] for key in config if key != "keep_best"} | {"checkpoint": "best"}


def _check(path: Path, made: Slice, wanted: Slice) -> None:
    """The training was made with the study's settings; its arithmetic is its own."""
    differ = [key for key in wanted if made.get(key) != wanted[key]]
    if {*differ} - {"precision", "compile"}:
        raise UserError(f"{path} was made with another {differ[0]} than the study has; train again")
