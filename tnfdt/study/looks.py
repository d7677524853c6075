"""The looks of a study: how many seeds each row of its tables has by now.

`seeds: {looks: [3, 5, 8]}` declares beforehand when the results will be looked at. Which look a
study has come to, which rows it extends, and with how many seeds the results were seen is kept
in results/{study}/looks.json, written by `tnfdt next` and at the end of a run.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tnfdt.study.paths import Cell, StudyPaths
from tnfdt.study.schema import UserError


@dataclass(frozen=True, kw_only=True)
class Looks:
    """Which look a study is at; without `planned` looks its seeds are a plain list."""

    planned: tuple[int, ...] = ()  # seeds at each look, ascending
    look: int = 1
    rows: dict[str, int] = field(default_factory=dict)  # seeds of rows beyond the first look's
    seen: tuple[int, ...] = ()  # numbers of seeds at which results were seen

    @property
    def seeds(self) -> int:
        """The most that any row has at this look."""
        return self.planned[self.look - 1]

    @property
    def begun(self) -> int:
        """The look that the rows' seeds need: one more than `look` until its results are there."""
        return max([self.look, *(self.planned.index(seeds) + 1 for seeds in self.rows.values())])

    def row_seeds(self, row: str) -> int:
        return self.rows.get(row, self.planned[0])


def read_looks(planned: Sequence[int], folder: Path | None, where: str) -> Looks:
    """The looks of a study whose results lie in `folder`, as far as it has come."""
    if list(planned) != sorted(set(planned)):
        raise UserError(f"{where}: seeds.looks must grow from look to look, such as [3, 5, 8]")
    path = StudyPaths(folder).looks if folder else None
    if path is None or not path.is_file():
        return Looks(planned=tuple(planned))
    try:
        return _checked(json.loads(path.read_text(encoding="utf-8")), tuple(planned))
    except (
        OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError,
    ) as error:  # fmt: skip
        raise UserError(
            f"{path} does not fit the study's looks ({error}); restore it, or delete it to begin "
            "with the first look"
        ) from None


def _checked(state: dict[str, Any], planned: tuple[int, ...]) -> Looks:
    look, rows, seen = state["look"], state["rows"], state["seen"]
    if type(look) is not int or (planned and not 1 <= look <= len(planned)):
        raise ValueError(f"look {look} of {len(planned)}")
    if any(seeds not in planned[:look] for seeds in rows.values()):
        raise ValueError("a row has seeds of no look")
    return Looks(planned=planned, look=look, rows=dict(rows), seen=tuple(map(int, seen)))


def as_json(looks: Looks) -> dict[str, Any]:
    """The content of looks.json."""
    state = asdict(looks)
    del state["planned"]
    return {"schema": 1, **state, "seen": sorted(set(looks.seen))}


def run_counts(cells: Iterable[Cell]) -> str:
    """How many runs the rows of these cells have: "3", or "3 to 5" where a look extends some."""
    counts = Counter(cell.row for cell in {*cells}).values()
    fewest, most = min(counts), max(counts)
    return f"{most}" if fewest == most else f"{fewest} to {most}"


def added_after(seen: Sequence[int], seeds: int) -> str:
    """That seeds were added after the results had been seen without a plan for it; else ""."""
    before = [str(count) for count in sorted(set(seen)) if count < seeds]
    return f"seeds added after a look at {', '.join(before)}" if before else ""
