"""The paper's numbers: config/published.csv, read, checked, and compared with ours."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from tnfdt.evidence.statistics import PAPER_RUNS, TTest, equivalence, published_se
from tnfdt.study.schema import UserError

COLUMNS = ["table", "dataset", "model", "method", "metric", "epsilon", "value", "sd"]

MARGIN = 1.0  # points: closer than this agrees

Key = tuple[str, str, str, str, str, float | None]  # table, dataset, model, method, metric, epsilon


@dataclass(frozen=True)
class PaperNumber:
    """A published accuracy in percent and its SD, nan where the paper gives none."""

    value: float
    sd: float


Published = Mapping[Key, PaperNumber]


def load_published(path: Path) -> pd.DataFrame:
    """The paper's numbers in percent; epsilon is nan for clean, sd where none is given."""
    try:
        frame = pd.read_csv(path, dtype=dict.fromkeys(COLUMNS[:5], str))
    except FileNotFoundError:
        raise UserError(f"{path} does not exist; restore it") from None
    except (OSError, ValueError, OverflowError) as error:
        raise UserError(f"{path} is not a CSV file ({error}); fix or restore it") from None
    if list(frame.columns) != COLUMNS:
        raise UserError(f"{path}: the columns must be {','.join(COLUMNS)}")
    return _checked_published(frame, path)


def _checked_published(frame: pd.DataFrame, path: Path) -> pd.DataFrame:
    for column in ("epsilon", "value", "sd"):
        numbers = pd.to_numeric(frame[column], errors="coerce")
        _refuse(frame[column].notna() & numbers.isna(), f"{column} is not a number", path)
        frame[column] = numbers.astype(float)
    sd, epsilon = frame["sd"], frame["epsilon"]
    clean = frame["metric"] == "clean"
    for what, bad in {
        "a name is missing": frame[COLUMNS[:5]].isna().any(axis=1),
        "metric is not clean or robust": ~frame["metric"].isin(["clean", "robust"]),
        "value is not a percentage from 0 to 100": ~frame["value"].between(0, 100),
        "sd is negative or above 100": sd.notna() & ~sd.between(0, 100),
        "epsilon is not 0 to 1": epsilon.notna() & ~epsilon.between(0, 1),
        "robust needs an epsilon, clean has none": clean != epsilon.isna(),
        "is duplicated": frame.duplicated(COLUMNS[:6]),
    }.items():
        _refuse(bad, what, path)
    return frame


def _refuse(bad: pd.Series[bool], what: str, path: Path) -> None:
    if bad.any():
        line = int(bad.to_numpy().argmax()) + 2  # the header is line 1
        raise UserError(f"{path}: line {line}: {what}")


def published_values(frame: pd.DataFrame | None) -> Published:
    """config/published.csv by (table, dataset, model, method, metric, epsilon)."""
    if frame is None:
        return {}
    epsilons = [None if math.isnan(epsilon) else epsilon for epsilon in frame["epsilon"]]
    keys = zip(*(frame[name] for name in COLUMNS[:5]), epsilons, strict=True)
    return dict(zip(keys, map(PaperNumber, frame["value"], frame["sd"]), strict=True))


def paper_model(published: Published, table: str, dataset: str, model: str) -> str:
    """The network whose numbers stand beside ours: the same, or the only one; "" if neither."""
    models = {key[2] for key in published if key[:2] == (table, dataset)}
    if model in models:
        return model
    return models.pop() if len(models) == 1 else ""


def agreement(
    values: Sequence[float], paper: PaperNumber, pooled: tuple[float, int], table: str
) -> dict[str, Any]:
    """Our mean minus a published number, in points, and what two one-sided tests say of it.

    values: one accuracy a seed; pooled: variance and df of the block, for numbers without SD.
    `outcome` is agrees, differs or cannot tell, "" without two seeds. Table 2 does not say how
    many runs its numbers are of: `outcome` takes three, as Table 1 has, and outcome_one_run one.
    """
    three, one = (against_published(values, paper, pooled, runs) for runs in (PAPER_RUNS, 1))
    low, high = three.interval()
    return {
        "difference": three.estimate,
        "low": low,
        "high": high,
        "outcome": equivalence(three, MARGIN),
        "outcome_one_run": equivalence(one, MARGIN) if table == "table2" else "",
    }


def against_published(
    values: Sequence[float], paper: PaperNumber, pooled: tuple[float, int], runs: int = PAPER_RUNS
) -> TTest:
    """Our mean minus a published number, with the standard error of the comparison."""
    estimate = sum(values) / len(values) - paper.value
    return TTest(estimate, *published_se(values, sd=paper.sd, runs=runs, pooled=pooled))
