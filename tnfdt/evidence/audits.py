"""The audits of a study as one frame: a row a cell and epsilon."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pandas as pd

from tnfdt.evidence.results import Results
from tnfdt.files.records import Record, read_record
from tnfdt.study.attack_settings import with_precision
from tnfdt.study.schema import UserError

ATTACKS = ("paper", "exact", "restarts", "steps_x2", "transfer", "noise", "black_box",
           "autoattack")  # fmt: skip
COLUMNS = (
    "dataset", "model", "method", "seed", "epsilon", "images", "clean", "paper_eq7", "exact_eq7",
    "paper_last", *ATTACKS, "worst_case", "badge", "not_run",
)  # fmt: skip


def audit_table(records: Iterable[Record]) -> pd.DataFrame:
    """One row a cell and epsilon, accuracies in percent.

    `paper_eq7` and `exact_eq7` are means over all iterates (Eq. 7), `paper_last` is the last
    iterate. The attacks' own columns are the images right on every iterate, each an upper bound
    of `worst_case` but for `black_box` and `autoattack`, which may attack only some of the
    images. What was not run is missing; `not_run` names what was asked for and could not run.
    """
    rows = [row for record in records for row in _rows(record)]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _rows(record: Record) -> list[Record]:
    """Raises where the record is no audit: a key is missing, or a number is none."""
    names = {key: record[key] for key in ("dataset", "model", "method")}
    counts = {key: int(record[key]) for key in ("seed", "images")}
    rows = []
    for epsilon, entry in record["epsilons"].items():
        numbers = {"clean": record["metrics"]["clean_accuracy"], **_accuracies(entry)}
        percent = {name: 100 * float(value) for name, value in numbers.items()}
        not_run = [f"{name} {why}" for name, why in entry.get("not_run", {}).items()]
        words = {"badge": entry.get("badge", record["badge"]), "not_run": ", ".join(not_run)}
        rows.append({**names, **counts, "epsilon": float(epsilon), **percent, **words})
    return rows


def _accuracies(entry: Record) -> Record:
    attacks = entry["attacks"]
    return {
        **{f"{name}_eq7": attacks[name]["robust_accuracy"] for name in ("paper", "exact")},
        "paper_last": attacks["paper"]["last_accuracy"],
        **{name: attacks[name]["worst_accuracy"] for name in ATTACKS if name in attacks},
        "worst_case": entry["worst_case"],
    }


def read_audits(results: Results) -> pd.DataFrame:
    """All audits that are there and belong to the weights that are there now."""
    records = []
    for path, record in current_audits(results):
        try:
            _rows(record)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise UserError(f"{path} is not an audit ({error!r}); delete it, audit again") from None
        records.append(record)
    return audit_table(records)


def current_audits(results: Results) -> Iterator[tuple[Path, Record]]:
    """The records of the audits that count, with their paths."""
    return ((path, record) for path, record, counts in _audits(results) if counts)


def outdated_audits(results: Results) -> list[Path]:
    """Audits with other settings, or of other weights, than are there now."""
    return [path for path, _, counts in _audits(results) if not counts]


def _audits(results: Results) -> Iterator[tuple[Path, Record, bool]]:
    """Every audit that is there, and whether it counts."""
    for cell in results.study.audited():
        path, training = results.paths.audit_record(cell), results.record(cell)
        if path.is_file():
            record = read_record(path, stage="audit", study=results.study.name, cell=cell)
            wanted = results.study.audit_slice(cell.method)
            same = with_precision(record.get("config") or {}) == wanted
            yield path, record, same and _of_weights(record, training)


def _of_weights(audit: Record, training: Record | None) -> bool:
    return training is not None and audit.get("model_sha256") == training.get("model_sha256")
