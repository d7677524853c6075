"""Stage 4 reads what the stages before it wrote: every record of a study, checked.

Nothing is averaged that does not belong together. What is not there yet, or was made with
other settings than the study has now, is missing; what contradicts itself is an error that
names the file.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray

from tnfdt.config import Cell, Machine, Study, UserError
from tnfdt.records import Record, identity, read_json, read_record
from tnfdt.results import (
    AnyArray,
    Attacked,
    FloatArray,
    Results,
    attack_path,
    clean_path,
    train_folder,
)
from tnfdt.validation import shown

ROUNDING = 1e-6  # an accuracy in a record against the one of its array
_COSTS = ("parameters", "peak_memory_bytes", "images_per_second", "duration_seconds")
_ARITHMETIC = ("precision", "compile")  # of the machine that trained, not of the study


def load_results(study: Study, results_dir: Path, machine: Machine) -> Results:
    """Read and check every record of a study that is there."""
    folder = results_dir / study.name
    _refuse_duplicates(study, folder)
    outdated: list[Path] = []
    trained = dict(_read_training(study, folder, machine, outdated))
    attacked = dict(_read_attacks(study, folder, trained, outdated))
    return Results(
        study=study,
        folder=folder,
        trained=trained,
        clean=_read_clean(folder, attacked),
        attacked=attacked,
        outdated=tuple(outdated),
    )


def _read_training(
    study: Study, folder: Path, machine: Machine, outdated: list[Path]
) -> Iterator[tuple[Cell, Record]]:
    copies = _Copies(folder)
    for cell in study.cells:
        path = train_folder(folder, cell) / "record.json"
        if not path.is_file():
            continue
        record = read_record(path, stage="train", study=study.name, cell=cell)
        _fraction(path, record, "accuracy")
        for key in _COSTS:
            _not_negative(path, record, key)
        wanted = study.train_slice(cell, machine)
        made = record.get("config") or {}
        same = all(made.get(key) == wanted[key] for key in wanted if key not in _ARITHMETIC)
        if same and copies.current(cell.dataset, path, record.get("dataset_fingerprint")):
            yield cell, record
        else:
            outdated.append(path)


class _Copies:
    """Which copy of each dataset counts: the one that is prepared now, else the only one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.known: dict[str, tuple[Path, object]] = {}

    def current(self, dataset: str, path: Path, fingerprint: object) -> bool:
        manifest = self.folder / "data" / dataset / "manifest.json"
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


def _read_attacks(
    study: Study, folder: Path, trained: dict[Cell, Record], outdated: list[Path]
) -> Iterator[tuple[tuple[Cell, float], Attacked]]:
    for cell in study.cells:
        for epsilon in study.attack.epsilons:
            path = attack_path(folder, cell, epsilon)
            if not (path.is_file() and path.with_suffix(".npz").is_file()):
                continue
            record = read_record(path, stage="attack", study=study.name, cell=cell)
            if record.get("epsilon") != epsilon:
                raise UserError(
                    f"{path}: epsilon is {record.get('epsilon')!r}, expected {epsilon:g}; "
                    "delete it and run again"
                )
            if _current(record, study.attack_slice(epsilon), trained.get(cell)):
                yield (cell, epsilon), _read_attack(path, record)
            else:
                outdated.append(path)


def _current(attack: Record, wanted: Record, training: Record | None) -> bool:
    """Was an attack made with the study's settings on the weights that are there now."""
    if training is None or attack.get("config") != wanted:
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


def _read_clean(
    folder: Path, attacked: dict[tuple[Cell, float], Attacked]
) -> dict[Cell, FloatArray]:
    """Clean results on the test set; all cells of a dataset attack the same images of it."""
    clean: dict[Cell, FloatArray] = {}
    chosen: dict[Cell, NDArray[np.int64]] = {}
    first: dict[str, Cell] = {}
    for (cell, _), attack in attacked.items():
        path = clean_path(folder, cell)
        if cell not in clean:
            clean[cell] = _read_right(path)
            chosen[cell] = _read_chosen(path, len(clean[cell]))
            other = first.setdefault(cell.dataset, cell)
            _same_count(path, len(clean[cell]), clean_path(folder, other), len(clean[other]))
            _same_images(path, chosen[cell], clean_path(folder, other), chosen[other])
        _same_count(attack.path, len(attack.scores), path, len(chosen[cell]))
        seen = _fraction(attack.path, attack.record, "clean_accuracy")
        _agree(attack.path, seen, clean[cell][chosen[cell]], path)
    return clean


def _read_right(path: Path) -> FloatArray:
    right = _read_array(path, "correct", dimensions=1)
    if right.dtype != np.bool_:
        raise UserError(f"{path}: correct is {right.dtype}, not bool; delete it, attack again")
    return right.astype(np.float64)


def _read_chosen(path: Path, count: int) -> NDArray[np.int64]:
    """Which of `count` test images were attacked."""
    chosen = _read_array(path, "indices", dimensions=1)
    if chosen.dtype != np.int64 or chosen.min() < 0 or chosen.max() >= count:
        raise UserError(f"{path}: indices are not of {count} images; delete it, attack again")
    return cast(NDArray[np.int64], chosen)


def _same_images(path: Path, indices: AnyArray, other: Path, expected: AnyArray) -> None:
    """Methods are compared image by image: a different set of images is no comparison."""
    _same_count(path, len(indices), other, len(expected))
    if not np.array_equal(indices, expected):
        raise UserError(
            f"{path} and {other} are of different images; delete the wrong one and attack again"
        )


def _same_count(path: Path, count: int, other: Path, expected: int) -> None:
    if count != expected:
        raise UserError(
            f"{path} has {count} images, {other} {expected}; all cells of a dataset need the "
            "same images: delete the wrong ones and attack again"
        )


def _agree(path: Path, recorded: float, scores: FloatArray, array: Path) -> None:
    if abs(recorded - float(scores.mean())) > ROUNDING:
        raise UserError(
            f"{path} says {recorded:.6f}, {array.name} beside it {scores.mean():.6f}; "
            "they are not of one run: delete both and attack again"
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
        with np.load(path, allow_pickle=False) as file:
            array: AnyArray = file[key]
    except FileNotFoundError:
        raise UserError(f"{path} does not exist; attack again") from None
    except Exception as error:  # whatever a damaged file makes numpy, zipfile and zlib raise
        raise UserError(f"{path}: cannot read {key} ({error}); delete it, attack again") from None
    if array.ndim != dimensions or array.size == 0:
        raise UserError(f"{path}: {key} has shape {list(array.shape)}; delete it, attack again")
    return array


def _refuse_duplicates(study: Study, folder: Path) -> None:
    """A copy of a record elsewhere in the folder leaves open which of the two is meant."""
    expected = {train_folder(folder, cell) / "record.json" for cell in study.cells} | {
        attack_path(folder, cell, epsilon)
        for cell in study.cells
        for epsilon in study.attack.epsilons
    }
    found = [*folder.glob("train/**/record*.json"), *folder.glob("attack/**/eps*.json")]
    for path in sorted(set(found) - expected):
        original = _place(study, folder, path)
        if original in expected and original.is_file():
            raise UserError(f"{path} and {original} are two records of one cell; delete one")


def _place(study: Study, folder: Path, path: Path) -> Path | None:
    """Where a record belongs by what it says of itself; None if it says nothing useful."""
    with contextlib.suppress(
        UserError, KeyError, TypeError, ValueError, AttributeError, OverflowError
    ):
        record = read_json(path)
        cell = Cell(record["dataset"], record["model"], record["method"], record["seed"])
        if identity(study.name, cell).items() <= record.items():
            if record["stage"] == "train":
                return train_folder(folder, cell) / "record.json"
            return attack_path(folder, cell, float(record["epsilon"]))
    return None
