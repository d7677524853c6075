"""history.csv: one row per epoch of a finished training; the one reader of it."""

from __future__ import annotations

import csv
from pathlib import Path

from tnfdt.study.schema import UserError

History = dict[str, list[float]]


def read_history(path: Path) -> History:
    """The columns by name, each with one number per epoch; none if the file is not there."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        history = {key: [float(row[key]) for row in rows] for key in (rows[0] if rows else ())}
        for column in ("epoch", "test_accuracy"):
            if column not in history:
                raise ValueError(f"it has no {column}")
        if history["epoch"] != list(range(1, len(rows) + 1)):
            raise ValueError("its epochs are not 1, 2, 3, …")
    except FileNotFoundError:
        return {}
    except (ValueError, TypeError, OSError, csv.Error) as error:
        raise UserError(f"{path} is not a history ({error}); train the cell again") from None
    return history
