"""The audits of a study as one frame: a row a cell and epsilon."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd

from tnfdt.evidence.activations import Place
from tnfdt.evidence.results import Results
from tnfdt.files.records import Record, read_record
from tnfdt.study.schema import UserError
from tnfdt.study.study import with_precision

ATTACKS = ("paper", "exact", "restarts", "steps_x2", "transfer", "noise", "black_box",
           "autoattack")  # fmt: skip
_CELL = ("dataset", "model", "method", "seed")
COLUMNS = (
    *_CELL, "epsilon", "images", "clean", "paper_eq7", "exact_eq7", "paper_last", *ATTACKS,
    "worst_case", "badge", "not_run",
)  # fmt: skip


def audit_table(records: Sequence[Record]) -> pd.DataFrame:
    """One row a cell and epsilon, accuracies in percent.

    `paper_eq7` and `exact_eq7` are means over all iterates (Eq. 7), `paper_last` is the last
    iterate. The attacks' own columns are the images right on every iterate, each an upper bound
    of `worst_case` but for `black_box` and `autoattack`, which may attack only some of the
    images. What was not run is missing; `not_run` names what was asked for and could not run.
    """
    rows = [row for record in records for row in _rows(record)]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _rows(record: Record) -> list[Record]:
    cell = {key: record[key] for key in (*_CELL, "images")}
    rows = []
    for epsilon, entry in record["epsilons"].items():
        numbers = {"clean": record["metrics"]["clean_accuracy"], **_accuracies(entry)}
        percent = {name: 100 * value for name, value in numbers.items()}
        not_run = [f"{name} {why}" for name, why in entry.get("not_run", {}).items()]
        words = {"badge": entry.get("badge", record["badge"]), "not_run": ", ".join(not_run)}
        rows.append({**cell, "epsilon": float(epsilon), **percent, **words})
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
    frames = list(_frames(results))
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=[*COLUMNS])


def autoattack_shares(results: Results) -> dict[float, dict[Place, float]]:
    """By epsilon, what AutoAttack leaves of each network: the mean over the audited seeds."""
    if results.study.audit.autoattack is None:
        return {}
    judged = read_audits(results).dropna(subset=["autoattack"])
    found: dict[float, dict[Place, float]] = {}
    for key, lines in judged.groupby(["epsilon", "dataset", "model", "method"], sort=False):
        epsilon, dataset, model, method = map(str, key)
        shares = found.setdefault(float(epsilon), {})
        shares[dataset, model, method] = float(lines["autoattack"].mean()) / 100
    return found


def current_audits(results: Results) -> Iterator[tuple[Path, Record]]:
    """The records of the audits that count, with their paths."""
    for cell in results.study.audited():
        path, training = results.paths.audit_record(cell), results.record(cell)
        if training is None or not path.is_file():
            continue
        record = read_record(path, stage="audit", study=results.study.name, cell=cell)
        wanted = results.study.audit_slice(cell.method)
        if with_precision(record.get("config") or {}) != wanted:
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
    names = ("dataset", "model", "method", "badge", "not_run")
    frame["images"] = frame["images"].astype(int)
    return frame.astype({key: float for key in frame.columns if key not in names})


def mean_or_none(values: pd.Series) -> float | None:
    known = values.dropna()
    return float(known.mean()) if len(known) else None
