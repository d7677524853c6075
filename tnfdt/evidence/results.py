"""What is known of a study: its records and per-image results, as tables and claims ask for them.

They are read from disk and checked by tnfdt/evidence/read.py.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from tnfdt.evidence.statistics import FloatArray, sample_sd
from tnfdt.files.atomic import sha256_file
from tnfdt.files.history import History, read_history
from tnfdt.files.records import Record, is_finite
from tnfdt.study.multiverse import Reading
from tnfdt.study.paths import Cell, StudyPaths, array_of
from tnfdt.study.study import Study


def number(value: Any) -> float:
    """A number that a record need not have, such as a duration; 0 where there is none."""
    return float(value) if is_finite(value) else 0.0


@dataclass(frozen=True, kw_only=True)
class Attacked:
    """One attack on one cell: its record and, per image, the share of iterates right (Eq. 7)."""

    path: Path
    record: Record
    scores: FloatArray  # [N]


@dataclass(frozen=True, kw_only=True)
class Entry:
    """The runs behind one number of a table, in percent, one per seed that is there."""

    values: tuple[float, ...]
    planned: int

    @property
    def mean(self) -> float:
        return sum(self.values) / len(self.values) if self.values else math.nan

    @property
    def sd(self) -> float:
        return sample_sd(self.values)

    @property
    def partial(self) -> bool:
        return 0 < len(self.values) < self.planned


@dataclass(frozen=True, kw_only=True)
class Results:
    """All that is known of a study; what is not in the dictionaries is not run yet.

    `outdated` are records made with other settings, or of weights that were trained again.
    """

    study: Study
    folder: Path
    trained: dict[Cell, Record]
    clean: dict[Cell, FloatArray]  # [N], right or wrong on each test image
    attacked: dict[tuple[Cell, float], Attacked]
    outdated: tuple[Path, ...]
    sha256s: Mapping[str, str] = field(default_factory=dict)  # of files that a bundle repacked

    @property
    def paths(self) -> StudyPaths:
        return StudyPaths(self.folder)

    @property
    def cells(self) -> list[Cell]:
        return self.study.cells

    @property
    def epsilons(self) -> tuple[float, ...]:
        return self.study.attack.epsilons

    @property
    def grid(self) -> dict[str, tuple[Cell, ...]]:
        return self.study.grid

    def own(self) -> Results:
        """The study's own reading alone: the cells of its grid."""
        cells = {*self.cells}
        return replace(
            self,
            trained={cell: record for cell, record in self.trained.items() if cell in cells},
            clean={cell: right for cell, right in self.clean.items() if cell in cells},
            attacked={key: attack for key, attack in self.attacked.items() if key[0] in cells},
        )

    def under(self, reading: Reading) -> Results:
        """The same study as it is under another reading, its methods by their usual names."""
        names = self.study.multiverse.names
        pairs = {cell: cell._replace(method=names[reading, cell.method]) for cell in self.cells}
        trained = {cell: self.study.trained_as(other) for cell, other in pairs.items()}
        return replace(
            self,
            trained={c: self.trained[t] for c, t in trained.items() if t in self.trained},
            clean={c: self.clean[t] for c, t in trained.items() if t in self.clean},
            attacked={
                (cell, epsilon): self.attacked[other, epsilon]
                for cell, other in pairs.items()
                for epsilon in self.epsilons
                if (other, epsilon) in self.attacked
            },
        )

    @property
    def records(self) -> list[Record]:
        """Those of all trainings and attacks that count."""
        return [*self.trained.values(), *(attack.record for attack in self.attacked.values())]

    def made_with(self) -> dict[str, list[str]]:
        """The commits and the versions of each library that the records name, by name."""
        found: dict[str, set[str]] = {}
        for record in self.records:
            versions = record.get("versions")
            known = versions if isinstance(versions, dict) else {}
            for name, version in {"commit": record.get("commit"), **known}.items():
                found.setdefault(name, set()).add(str(version))
        return {name: sorted(found[name]) for name in sorted(found)}

    @property
    def is_complete(self) -> bool:
        """Whether every cell is trained, and attacked at every epsilon."""
        attacks = ((cell, epsilon) for cell in self.cells for epsilon in self.epsilons)
        return all(c in self.trained for c in self.cells) and all(
            a in self.attacked for a in attacks
        )

    def record(self, cell: Cell) -> Record | None:
        """The record of a cell's training, or None if it is not trained yet."""
        return self.trained.get(cell)

    def scores(self, cell: Cell, metric: str, epsilon: float | None = None) -> FloatArray | None:
        """In [0, 1]: "clean", each test image right or wrong; "robust", Eq. 7 of each attacked."""
        if metric == "clean":
            return self.clean.get(cell)
        attack = self.attacked.get((cell, epsilon or 0.0))
        return attack.scores if attack else None

    def accuracy(self, cell: Cell, epsilon: float | None = None) -> float | None:
        """A number of the paper's tables in [0, 1]: clean on all test images, or Eq. 7."""
        if epsilon is None:
            record = self.record(cell)
            return float(record["metrics"]["accuracy"]) if record else None
        scores = self.scores(cell, "robust", epsilon)
        return None if scores is None else float(scores.mean())

    def entry(self, cells: Sequence[Cell], epsilon: float | None = None) -> Entry:
        """The number of a table that these cells are the seeds of."""
        found = [self.accuracy(cell, epsilon) for cell in cells]
        return Entry(values=tuple(100 * a for a in found if a is not None), planned=len(cells))

    def curve(self, cell: Cell, epsilon: float) -> FloatArray | None:
        """Accuracy on each iterate of an attack, [T], in [0, 1]."""
        attack = self.attacked.get((cell, epsilon))
        return np.asarray(attack.record["metrics"]["curve"], dtype=float) if attack else None

    def images(self, dataset: str) -> int:
        """How many test images of a dataset were attacked; 0 if none was yet."""
        found = (a.scores for (cell, _), a in self.attacked.items() if cell.dataset == dataset)
        return len(next(found, ()))

    def history(self, cell: Cell) -> History:
        """The course of a finished training; empty if there is none."""
        return read_history(self.paths.history(cell)) if cell in self.trained else {}

    def sha256(self, path: Path) -> str:
        """Of a file of the study as its stage wrote it."""
        name = path.relative_to(self.folder).as_posix()
        return self.sha256s.get(name) or sha256_file(path)

    def sources(self, cell: Cell, epsilon: float | None = None) -> list[Path]:
        """The files that a number of the tables, and the mark at it, was computed from."""
        if epsilon is None:
            record, clean = self.paths.record(cell), self.paths.clean(cell)
            return [record] * (cell in self.trained) + [clean] * (cell in self.clean)
        attack = self.attacked.get((cell, epsilon))
        return [attack.path, array_of(attack.path)] if attack else []
