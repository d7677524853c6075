"""Stage 4 reads what the stages before it wrote: every record of a study, checked.

Nothing is averaged that does not belong together. What is not there yet, or was made with
other settings than the study has now, is missing; what contradicts itself is an error that
names the file.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import product
from pathlib import Path

import numpy as np

from tnfdt.evidence.results import Attacked, Results
from tnfdt.evidence.statistics import FloatArray
from tnfdt.files.atomic import Array, Arrays, read_arrays, read_json
from tnfdt.files.clean_answers import read_clean
from tnfdt.files.records import UNCOMPARED, Record, cell_of, identity, is_number, read_record
from tnfdt.study.attack_settings import with_precision
from tnfdt.study.machine import Machine
from tnfdt.study.paths import Cell, StudyPaths, array_of
from tnfdt.study.schema import UserError, shown
from tnfdt.study.study import Study

ROUNDING = 1e-6  # an accuracy in a record against the one of its array
_COSTS = ("parameters", "peak_memory_bytes", "images_per_second", "duration_seconds")


def load_results(
    study: Study,
    results_dir: Path,
    machine: Machine,
    *,
    attacks: bool = True,
    variants: bool = False,
) -> Results:
    """Read and check every record of a study that is there; without `attacks` the trainings'.

    With `variants` those of other readings of the paper too, for `under`.
    """
    reader = _Reader(study, StudyPaths(results_dir / study.name))
    reader.refuse_duplicates()
    cells = [*study.cells, *(study.variants if variants else ())]
    trained = dict(reader.trainings(cells, machine))
    clean = dict(reader.clean(trained)) if attacks else {}
    attacked = dict(reader.attacks(cells, trained, clean)) if attacks else {}
    return Results(
        study=study,
        folder=reader.paths.folder,
        trained=trained,
        clean=clean,
        attacked=attacked,
        outdated=tuple(reader.outdated),
    )


class _Reader:
    """Of each dataset it remembers the first file, with which all others must agree."""

    def __init__(self, study: Study, paths: StudyPaths) -> None:
        self.study, self.paths = study, paths
        self.outdated: list[Path] = []
        self._copies: dict[str, tuple[Path, object]] = {}
        self._counts: dict[str, tuple[Path, int]] = {}
        self._images: dict[str, tuple[Path, Array]] = {}

    def trainings(self, cells: Sequence[Cell], machine: Machine) -> Iterator[tuple[Cell, Record]]:
        for cell in dict.fromkeys(map(self.study.trained_as, cells)):
            path = self.paths.record(cell)
            if not path.is_file():
                continue
            record = read_record(path, stage="train", study=self.study.name, cell=cell)
            _fraction(path, record, "accuracy")
            for key in _COSTS:
                _not_negative(path, record, key)
            wanted, made = self.study.train_slice(cell, machine), record.get("config") or {}
            keys = {*wanted, *made}.difference(UNCOMPARED)
            same = all(made.get(key) == wanted.get(key) for key in keys)
            if same and self._is_current_copy(cell, record.get("dataset_fingerprint")):
                yield cell, record
            else:
                self.outdated.append(path)

    def _is_current_copy(self, cell: Cell, fingerprint: object) -> bool:
        """Of a dataset counts the copy that is prepared now, else the only one trained on."""
        path, manifest = self.paths.record(cell), self.paths.manifest(cell.dataset)
        if manifest.is_file():
            return self._is_prepared(read_json(manifest), fingerprint)
        first, expected = self._copies.setdefault(cell.dataset, (path, fingerprint))
        if fingerprint != expected:
            raise UserError(
                f"{path} and {first} are trained on different copies of {cell.dataset}; "
                "run the study again, or delete the wrong ones"
            )
        return True

    def _is_prepared(self, manifest: object, fingerprint: object) -> bool:
        """With the study's number of images; a bundle's manifest does not say how many."""
        if not isinstance(manifest, dict):
            return False
        limit = asdict(self.study.limit)
        same = manifest.get("limit", limit) == limit
        return same and bool(manifest.get("fingerprint") == fingerprint)

    def clean(self, trained: dict[Cell, Record]) -> Iterator[tuple[Cell, FloatArray]]:
        """Right or wrong on each test image, of every training that has it."""
        for cell, record in trained.items():
            path = self.paths.clean(cell)
            if path.is_file():
                clean = read_clean(path).astype(np.float64)
                first = self._counts.setdefault(cell.dataset, (path, len(clean)))
                _same_count(path, len(clean), *first)
                _agree(self.paths.record(cell), record["metrics"]["accuracy"], clean, path)
                yield cell, clean

    def attacks(
        self, cells: Sequence[Cell], trained: dict[Cell, Record], clean: dict[Cell, FloatArray]
    ) -> Iterator[tuple[tuple[Cell, float], Attacked]]:
        for cell, epsilon in product(cells, self.study.attack.epsilons):
            path = self.paths.attack_record(cell, epsilon)
            array = array_of(path)
            if not (path.is_file() and array.is_file()):
                continue
            record = read_record(path, stage="attack", study=self.study.name, cell=cell)
            if record.get("epsilon") != epsilon:
                raise UserError(
                    f"{path}: epsilon is {record.get('epsilon')!r}, expected {epsilon:g}; "
                    "delete it and run again"
                )
            network = self.study.trained_as(cell)
            wanted = self.study.attack_slice(epsilon, cell.method)
            if not _current(record, wanted, trained.get(network)):
                self.outdated.append(path)
                continue
            arrays = read_arrays(array)
            attack = _attack(path, record, arrays)
            chosen = self._same_images(array, arrays, cell.dataset, len(attack.scores))
            seen = _fraction(path, record, "clean_accuracy")
            if network in clean:
                right = _chosen(array, chosen, clean[network])
                _agree(path, seen, right, self.paths.clean(network))
            yield (cell, epsilon), attack

    def _same_images(self, path: Path, arrays: Arrays, dataset: str, count: int) -> Array:
        """Methods are compared image by image: all attacks on a dataset are of the same ones."""
        chosen = _array(path, arrays, "indices", np.int64, 1)
        other, expected = self._images.setdefault(dataset, (path, chosen))
        _same_count(path, len(chosen), path.with_suffix(".json"), count)
        _same_count(path, len(chosen), other, len(expected))
        if not np.array_equal(chosen, expected):
            raise UserError(
                f"{path} and {other} are of different images; delete the wrong one and attack again"
            )
        return chosen

    def refuse_duplicates(self) -> None:
        """A copy of a record elsewhere in the folder leaves open which of the two is meant."""
        cells, paths = [*self.study.cells, *self.study.variants], self.paths
        epsilons = self.study.attack.epsilons
        expected = {paths.record(cell) for cell in cells}
        expected |= {paths.attack_record(cell, e) for cell, e in product(cells, epsilons)}
        for path in sorted(paths.all_records() - expected):
            original = self._place(path)
            if original in expected and original.is_file():
                raise UserError(f"{path} and {original} are two records of one cell; delete one")

    def _place(self, path: Path) -> Path | None:
        """Where a record belongs by what it says of itself; None if it says nothing useful."""
        with contextlib.suppress(
            UserError, KeyError, TypeError, ValueError, AttributeError, OverflowError
        ):
            record = read_json(path)
            cell = cell_of(record)
            if identity(self.study.name, cell).items() <= record.items():
                if record["stage"] == "train":
                    return self.paths.record(cell)
                return self.paths.attack_record(cell, float(record["epsilon"]))
        return None


def _current(attack: Record, wanted: Record, training: Record | None) -> bool:
    """Was an attack made with the study's settings on the weights that are there now."""
    if training is None or with_precision(attack.get("config") or {}) != wanted:
        return False
    return attack.get("model_sha256") == training.get("model_sha256")


def _attack(path: Path, record: Record, arrays: Arrays) -> Attacked:
    array = array_of(path)
    correct = _array(array, arrays, "correct", np.bool_, 2)
    _same_count(array, correct.shape[1], path, record.get("images"))
    scores = correct.mean(axis=0, dtype=np.float64)
    _agree(path, _fraction(path, record, "robust_accuracy"), scores, array)
    curve = record["metrics"].get("curve")
    if not isinstance(curve, list) or not all(map(is_number, curve)) or len(curve) != len(correct):
        raise UserError(f"{path}: curve is not of {len(correct)} steps; delete it, attack again")
    return Attacked(path=path, record=record, scores=scores)


def _chosen(path: Path, chosen: Array, right: FloatArray) -> FloatArray:
    """The clean results on the attacked images."""
    if chosen.min() < 0 or chosen.max() >= len(right):
        raise UserError(f"{path}: indices are not of {len(right)} images; delete it, attack again")
    return right[chosen]


def _same_count(path: Path, count: int, other: Path, expected: object) -> None:
    if count != expected:
        raise UserError(
            f"{path} has {count} images, {other} {shown(expected)}; all cells of a dataset need "
            "the same images: delete the wrong ones and attack again"
        )


def _agree(path: Path, recorded: float, scores: FloatArray, array: Path) -> None:
    if abs(recorded - float(scores.mean())) > ROUNDING:
        raise UserError(
            f"{path} says {recorded:.6f}, {array} {scores.mean():.6f}; "
            "they are not of one run: delete both and run again"
        )


def _fraction(path: Path, record: Record, key: str) -> float:
    value = record["metrics"].get(key)
    if not is_number(value) or not 0 <= value <= 1:
        raise UserError(f"{path}: {key} is {shown(value)}, expected 0..1; delete it and run again")
    return float(value)


def _not_negative(path: Path, record: Record, key: str) -> None:
    value = record["metrics"].get(key)
    if value is not None and not (is_number(value) and value >= 0):
        raise UserError(f"{path}: {key} is {shown(value)}, expected 0 or more; train again")


def _array(path: Path, arrays: Arrays, key: str, kind: type, dimensions: int) -> Array:
    """One of the arrays of a file, of this kind and so many dimensions, and not empty."""
    array = arrays.get(key)
    if array is None or array.dtype != kind or array.ndim != dimensions or array.size == 0:
        found = "missing" if array is None else f"{array.dtype} {list(array.shape)}"
        raise UserError(f"{path}: {key} is {found}, not {kind.__name__}; delete it and run again")
    return array
