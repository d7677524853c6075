"""The audits of a study as one frame: a row a cell and epsilon."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd

from tnfdt.evidence.results import Results
from tnfdt.files.records import Record, read_record
from tnfdt.study.schema import UserError

ATTACKS = ("paper", "exact", "restarts", "steps_x2", "transfer", "noise", "black_box")
_CELL = ("dataset", "model", "method", "seed")
COLUMNS = (
    *_CELL, "epsilon", "images", "clean", "paper_eq7", "exact_eq7", *ATTACKS, "worst_case",
    "badge",
)  # fmt: skip


def audit_table(records: Sequence[Record]) -> pd.DataFrame:
    """One row a cell and epsilon, accuracies in percent.

    `paper_eq7` and `exact_eq7` are means over all iterates (Eq. 7). The attacks' own columns are
    the images right on every iterate, each an upper bound of `worst_case` but for `black_box`,
    which attacks only some of the images. What was not run is missing.
    """
    rows = [row for record in records for row in _rows(record)]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _rows(record: Record) -> list[Record]:
    cell = {key: record[key] for key in (*_CELL, "images", "badge")}
    rows = []
    for epsilon, entry in record["epsilons"].items():
        attacks = entry["attacks"]
        worst = {name: attacks[name]["worst_accuracy"] for name in ATTACKS if name in attacks}
        eq7 = {f"{name}_eq7": attacks[name]["robust_accuracy"] for name in ("paper", "exact")}
        clean = record["metrics"]["clean_accuracy"]
        found = {"clean": clean, **eq7, **worst, "worst_case": entry["worst_case"]}
        percent = {name: 100 * value for name, value in found.items()}
        rows.append({**cell, "epsilon": float(epsilon), **percent})
    return rows


def read_audits(results: Results) -> pd.DataFrame:
    """All audits that are there and belong to the weights that are there now."""
    frames = list(_frames(results))
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=[*COLUMNS])


def current_audits(results: Results) -> Iterator[tuple[Path, Record]]:
    """The records of the audits that count, with their paths."""
    for cell in results.study.audited():
        path, training = results.paths.audit_record(cell), results.record(cell)
        if training is None or not path.is_file():
            continue
        record = read_record(path, stage="audit", study=results.study.name, cell=cell)
        if record.get("config") != results.study.audit_slice():
            continue
        if record.get("model_sha256") == training.get("model_sha256"):
            yield path, record


def _frames(results: Results) -> Iterator[pd.DataFrame]:
    for path, record in current_audits(results):
        try:
            yield _numbers(audit_table([record]))
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise UserError(f"{path} is not an audit ({error!r}); delete it, audit again") from None


def _numbers(frame: pd.DataFrame) -> pd.DataFrame:
    """All columns but names as floats; raises where one is no number."""
    names = ("dataset", "model", "method", "badge")
    frame["images"] = frame["images"].astype(int)
    return frame.astype({key: float for key in frame.columns if key not in names})
