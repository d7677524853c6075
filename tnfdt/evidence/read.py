"""Stage 4 reads what the stages before it wrote: every record of a study, checked.

Nothing is averaged that does not belong together. What is not there yet, or was made with
other settings than the study has now, is missing; what contradicts itself is an error that
names the file.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray

from tnfdt.evidence.results import AnyArray, Attacked, FloatArray, Results
from tnfdt.files.atomic import read_json, refuse_bomb
from tnfdt.files.records import Record, identity, read_record
from tnfdt.study.machine import Machine
from tnfdt.study.paths import Cell, StudyPaths
from tnfdt.study.schema import UserError, shown
from tnfdt.study.study import Study, with_precision

ROUNDING = 1e-6  # an accuracy in a record against the one of its array
_COSTS = ("parameters", "peak_memory_bytes", "images_per_second", "duration_seconds")
_ADDED = ("num_classes", "smoothing")  # what a training adds to its slice in the record
_ARITHMETIC = ("precision", "compile")  # of the machine that trained, not of the study


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
    folder = results_dir / study.name
    paths = StudyPaths(folder)
    _refuse_duplicates(study, paths)
    outdated: list[Path] = []
    cells = [*study.cells, *(study.variants if variants else ())]
    trained = dict(_read_training(study, cells, paths, machine, outdated))
    clean = dict(_read_clean(paths, trained)) if attacks else {}
    attacked = _read_attacks(study, cells, paths, trained, clean, outdated) if attacks else ()
    return Results(
        study=study,
        folder=folder,
        trained=trained,
        clean=clean,
        attacked=dict(attacked),
        outdated=tuple(outdated),
    )


def _read_training(
    study: Study,
    cells: Sequence[Cell],
    paths: StudyPaths,
    machine: Machine,
    outdated: list[Path],
) -> Iterator[tuple[Cell, Record]]:
    copies = _Copies(paths)
    for cell in dict.fromkeys(map(study.trained_as, cells)):
        path = paths.record(cell)
        if not path.is_file():
            continue
        record = read_record(path, stage="train", study=study.name, cell=cell)
        _fraction(path, record, "accuracy")
        for key in _COSTS:
            _not_negative(path, record, key)
        wanted = study.train_slice(cell, machine)
        made = record.get("config") or {}
        keys = ({*wanted, *made}).difference(_ARITHMETIC, _ADDED)
        same = all(made.get(key) == wanted.get(key) for key in keys)
        if same and copies.current(cell.dataset, path, record.get("dataset_fingerprint")):
            yield cell, record
        else:
            outdated.append(path)


class _Copies:
    """Which copy of each dataset counts: the one that is prepared now, else the only one."""

    def __init__(self, paths: StudyPaths) -> None:
        self.paths = paths
        self.known: dict[str, tuple[Path, object]] = {}

    def current(self, dataset: str, path: Path, fingerprint: object) -> bool:
        manifest = self.paths.manifest(dataset)
        if dataset not in self.known and manifest.is_file():
            prepared = read_json(manifest)
            known = prepared.get("fingerprint") if isinstance(prepared, dict) else None
            self.known[dataset] = (manifest, known)
        first, expected = self.known.setdefault(dataset, (path, fingerprint))
        if first != manifest and fingerprint != expected:
            raise UserError(
                f"{path} and {first} are trained on different copies of {dataset}; "
                "run the study again, or delete the wrong ones"
            )
        return fingerprint == expected


def _read_clean(
    paths: StudyPaths, trained: dict[Cell, Record]
) -> Iterator[tuple[Cell, FloatArray]]:
    """Right or wrong on each test image, of every training that has it."""
    first: dict[str, tuple[Path, int]] = {}
    for cell, record in trained.items():
        path = paths.clean(cell)
        if path.is_file():
            clean = _read_right(path)
            _same_count(path, len(clean), *first.setdefault(cell.dataset, (path, len(clean))))
            _agree(paths.record(cell), float(record["metrics"]["accuracy"]), clean, path)
            yield cell, clean


def _read_right(path: Path) -> FloatArray:
    right = _read_array(path, "correct", dimensions=1)
    if right.dtype != np.bool_:
        raise UserError(f"{path}: correct is {right.dtype}, not bool; delete it, train again")
    return right.astype(np.float64)


def _read_attacks(
    study: Study,
    cells: Sequence[Cell],
    paths: StudyPaths,
    trained: dict[Cell, Record],
    clean: dict[Cell, FloatArray],
    outdated: list[Path],
) -> Iterator[tuple[tuple[Cell, float], Attacked]]:
    images = _Images(paths, clean)
    for cell in cells:
        for epsilon in study.attack.epsilons:
            path = paths.attack_record(cell, epsilon)
            if not (path.is_file() and path.with_suffix(".npz").is_file()):
                continue
            record = read_record(path, stage="attack", study=study.name, cell=cell)
            if record.get("epsilon") != epsilon:
                raise UserError(
                    f"{path}: epsilon is {record.get('epsilon')!r}, expected {epsilon:g}; "
                    "delete it and run again"
                )
            network, wanted = study.trained_as(cell), study.attack_slice(epsilon, cell.method)
            if _current(record, wanted, trained.get(network)):
                attack = _read_attack(path, record)
                images.check(network, attack)
                yield (cell, epsilon), attack
            else:
                outdated.append(path)


def _current(attack: Record, wanted: Record, training: Record | None) -> bool:
    """Was an attack made with the study's settings on the weights that are there now."""
    if training is None or with_precision(attack.get("config") or {}) != wanted:
        return False
    return attack.get("model_sha256") == training.get("model_sha256")


def _read_attack(path: Path, record: Record) -> Attacked:
    array = path.with_suffix(".npz")
    correct = _read_array(array, "correct", dimensions=2)
    if correct.dtype != np.bool_ or correct.shape[1] != record.get("images"):
        raise UserError(
            f"{array}: correct is {correct.dtype} {list(correct.shape)} where its record has "
            f"{record.get('images')} images; delete both and attack again"
        )
    scores = correct.mean(axis=0, dtype=np.float64)
    _agree(path, _fraction(path, record, "robust_accuracy"), scores, array)
    curve = record["metrics"].get("curve")
    if not isinstance(curve, list) or not all(map(_is_number, curve)) or len(curve) != len(correct):
        raise UserError(f"{path}: curve is not of {len(correct)} steps; delete it, attack again")
    return Attacked(path=path, record=record, scores=scores)


class _Images:
    """Methods are compared image by image: all attacks on a dataset are of the same ones."""

    def __init__(self, paths: StudyPaths, clean: dict[Cell, FloatArray]) -> None:
        self.paths, self.clean = paths, clean
        self.first: dict[str, tuple[Path, AnyArray]] = {}

    def check(self, cell: Cell, attack: Attacked) -> None:
        """The images of an attack are those of the others, and the clean results agree."""
        path = attack.path.with_suffix(".npz")
        chosen = _read_array(path, "indices", dimensions=1)
        other, expected = self.first.setdefault(cell.dataset, (path, chosen))
        _same_count(path, len(chosen), attack.path, len(attack.scores))
        _same_count(path, len(chosen), other, len(expected))
        if not np.array_equal(chosen, expected):
            raise UserError(
                f"{path} and {other} are of different images; delete the wrong one and attack again"
            )
        seen = _fraction(attack.path, attack.record, "clean_accuracy")
        if cell in self.clean:
            right = _chosen(path, chosen, self.clean[cell])
            _agree(attack.path, seen, right, self.paths.clean(cell))


def _chosen(path: Path, chosen: AnyArray, right: FloatArray) -> FloatArray:
    """The clean results on the attacked images."""
    count = len(right)
    if not (chosen.dtype == np.int64 and chosen.min() >= 0 and chosen.max() < count):
        raise UserError(f"{path}: indices are not of {count} images; delete it, attack again")
    return right[cast(NDArray[np.int64], chosen)]


def _same_count(path: Path, count: int, other: Path, expected: int) -> None:
    if count != expected:
        raise UserError(
            f"{path} has {count} images, {other} {expected}; all cells of a dataset need the "
            "same images: delete the wrong ones and attack again"
        )


def _agree(path: Path, recorded: float, scores: FloatArray, array: Path) -> None:
    if abs(recorded - float(scores.mean())) > ROUNDING:
        raise UserError(
            f"{path} says {recorded:.6f}, {array} {scores.mean():.6f}; "
            "they are not of one run: delete both and run again"
        )


def _fraction(path: Path, record: Record, key: str) -> float:
    value = record["metrics"].get(key)
    if not _is_number(value) or not 0 <= value <= 1:
        raise UserError(f"{path}: {key} is {shown(value)}, expected 0..1; delete it and run again")
    return float(value)


def _not_negative(path: Path, record: Record, key: str) -> None:
    value = record["metrics"].get(key)
    if value is not None and not (_is_number(value) and value >= 0):
        raise UserError(f"{path}: {key} is {shown(value)}, expected 0 or more; train again")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _read_array(path: Path, key: str, *, dimensions: int) -> AnyArray:
    """One array of an .npz; never unpickles."""
    try:
        refuse_bomb(path)
        with np.load(path, allow_pickle=False) as file:
            array: AnyArray = file[key]
    except Exception as error:  # whatever a damaged file makes numpy, zipfile and zlib raise
        raise UserError(f"{path}: cannot read {key} ({error}); delete it and run again") from None
    if array.ndim != dimensions or array.size == 0:
        raise UserError(f"{path}: {key} has shape {list(array.shape)}; delete it and run again")
    return array


def _refuse_duplicates(study: Study, paths: StudyPaths) -> None:
    """A copy of a record elsewhere in the folder leaves open which of the two is meant."""
    expected = {paths.record(cell) for cell in study.cells} | {
        paths.attack_record(cell, epsilon)
        for cell in study.cells
        for epsilon in study.attack.epsilons
    }
    folder = paths.folder
    found = [*folder.glob("train/**/record*.json"), *folder.glob("attack/**/eps*.json")]
    for path in sorted(set(found) - expected):
        original = _place(study, paths, path)
        if original in expected and original.is_file():
            raise UserError(f"{path} and {original} are two records of one cell; delete one")


def _place(study: Study, paths: StudyPaths, path: Path) -> Path | None:
    """Where a record belongs by what it says of itself; None if it says nothing useful."""
    with contextlib.suppress(
        UserError, KeyError, TypeError, ValueError, AttributeError, OverflowError
    ):
        record = read_json(path)
        cell = Cell(record["dataset"], record["model"], record["method"], record["seed"])
        if identity(study.name, cell).items() <= record.items():
            if record["stage"] == "train":
                return paths.record(cell)
            return paths.attack_record(cell, float(record["epsilon"]))
    return None
