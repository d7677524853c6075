"""The paper's numbers, read from config/published.csv and checked."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from tnfdt.study.schema import UserError

COLUMNS = ["table", "dataset", "model", "method", "metric", "epsilon", "value", "sd"]

Published = Mapping[tuple[Any, ...], float]


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
    _refuse(frame[COLUMNS[:5]].isna().any(axis=1), "a name is missing", path)
    _refuse(~frame["metric"].isin(["clean", "robust"]), "metric is not clean or robust", path)
    _refuse(~frame["value"].between(0, 100), "value is not a percentage from 0 to 100", path)
    wild = frame["sd"].notna() & ~frame["sd"].between(0, 100)
    _refuse(wild, "sd is negative or above 100", path)
    outside = frame["epsilon"].notna() & ~frame["epsilon"].between(0, 1)
    _refuse(outside, "epsilon is not 0 to 1", path)
    clean = frame["metric"] == "clean"
    _refuse(clean != frame["epsilon"].isna(), "robust needs an epsilon, clean has none", path)
    _refuse(frame.duplicated(COLUMNS[:6]), "is duplicated", path)
    return frame


def _refuse(bad: pd.Series[bool], what: str, path: Path) -> None:
    if bad.any():
        line = int(bad.to_numpy().argmax()) + 2  # the header is line 1
        raise UserError(f"{path}: line {line}: {what}")


def published_values(frame: pd.DataFrame | None) -> Published:
    """config/published.csv by (table, dataset, model, method, metric, epsilon), in percent."""
    if frame is None:
        return {}
    keys = ("table", "dataset", "model", "method", "metric")
    epsilons = [None if math.isnan(epsilon) else epsilon for epsilon in frame["epsilon"]]
    names = zip(*(frame[key] for key in keys), epsilons, strict=True)
    return dict(zip(names, frame["value"], strict=True))
