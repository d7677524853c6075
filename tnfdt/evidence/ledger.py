"""The ledger of a study: the numbers of every finished cell in one small file.

Weights, arrays and records are not committed; the ledger is, among the tables, and holds what
`tnfdt verify` needs to run a cell again and compare: its configuration, the data it saw, its
numbers, and what they were made with. The courses of a training, and of loss and gradient in
an attack, stay with the records.
"""

from __future__ import annotations

import json
from pathlib import Path

from tnfdt.evidence.results import Results
from tnfdt.files.atomic import read_json
from tnfdt.files.history import read_history
from tnfdt.files.records import SCHEMA, Record, is_finite, read_record
from tnfdt.study.paths import Cell, StudyPaths
from tnfdt.study.schema import UserError, shown

_TRAIN = ("metrics", "config", "interpretation", "dataset_fingerprint", "model_sha256")
_MADE = ("commit", "versions", "hardware")
_ATTACK = ("epsilon", "images", "metrics", "config")
_LONG = ("loss", "gradient_norm")


def text(results: Results) -> str:
    """The ledger of all that is known of a study; a line per cell, so that a change shows."""
    entries = ((cell.path, _entry(results, cell)) for cell in results.trained)
    lines = [f"    {json.dumps(path)}: {json.dumps(entry)}" for path, entry in entries]
    study = json.dumps(results.study.name)
    head = f'{{\n  "schema": {SCHEMA},\n  "study": {study},\n  "cells": {{\n'
    return head + ",\n".join(lines) + "\n  }\n}\n"


def read_cell(folder: Path, cell: Cell, network: Cell) -> Record:
    """What is known of a cell: the record of its training, its history, those of its attacks.

    network: the cell whose training it has, under another reading that may be another one.
    """
    paths, study = StudyPaths(folder), folder.resolve().name
    if not paths.record(network).is_file():
        return _from_ledger(paths, cell)
    attacks = [_read_attack(path, study, cell) for path in paths.attack_records(cell)]
    return {
        "train": read_record(paths.record(network), stage="train", study=study, cell=network),
        "history": read_history(paths.history(network)),
        "attacks": sorted(attacks, key=lambda record: -float(record["epsilon"])),
    }


def _read_attack(path: Path, study: str, cell: Cell) -> Record:
    record = read_record(path, stage="attack", study=study, cell=cell)
    if not is_finite(record.get("epsilon")):
        raise UserError(f"{path}: epsilon is {shown(record.get('epsilon'))}; attack again")
    return record


def cells(path: Path) -> dict[str, Record]:
    """The entries of a ledger by the path of their cell; none if it is not there."""
    if not path.is_file():
        return {}
    ledger = read_json(path)
    entries = ledger.get("cells") if isinstance(ledger, dict) else None
    if not isinstance(entries, dict) or ledger.get("schema") != SCHEMA:
        raise UserError(f"{path} is not a ledger of this version; restore or delete it")
    return entries


def _from_ledger(paths: StudyPaths, cell: Cell) -> Record:
    known = cells(paths.ledger)
    if not known:
        raise UserError(
            f"{paths.folder} has neither a record of {cell.path} nor a {paths.ledger.name}; "
            "name a cell that is trained"
        )
    if cell.path not in known:
        example = next(iter(known))
        raise UserError(f"{paths.ledger}: {cell.path} is not in it; it has {example} and the like")
    return known[cell.path]


def _entry(results: Results, cell: Cell) -> Record:
    train = results.trained[cell]
    epsilons = sorted(results.epsilons, reverse=True)
    attacks = [results.attacked.get((cell, epsilon)) for epsilon in epsilons]
    return {
        "train": {key: train.get(key) for key in (*_TRAIN, *_MADE)},
        "history": {},
        "attacks": [_without_courses(attack.record) for attack in attacks if attack],
    }


def _without_courses(attack: Record) -> Record:
    metrics = {key: value for key, value in attack["metrics"].items() if key not in _LONG}
    return {**{key: attack.get(key) for key in _ATTACK}, "metrics": metrics}
