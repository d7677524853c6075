"""`tnfdt status --check`: are the files of a study those that its records were written for."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

from tnfdt.files.atomic import sha256_file
from tnfdt.files.records import Record, read_record
from tnfdt.study.machine import Machine
from tnfdt.study.paths import Cell, StudyPaths
from tnfdt.study.schema import UserError
from tnfdt.study.study import Study

_MADE_FROM = ("model_sha256", "dataset_fingerprint")


def run(study: Study, machine: Machine) -> int:
    """Print a line for each mismatch; the exit code says whether there is one."""
    found = list(mismatches(study, machine))
    print(*found or [f"{study.name}: all files are those of their records"], sep="\n")
    return int(bool(found))


def mismatches(study: Study, machine: Machine) -> Iterator[str]:
    """Weights, attacks and audits against the training's record; images against their manifest;
    what the tables were made from against sources.csv; arrays against the numbers of records."""
    paths = StudyPaths(Path(machine.results_dir, study.name))
    for dataset in dict.fromkeys(cell.dataset for cell in study.cells):
        yield from _data(paths, dataset)
    for cell in study.cells:
        try:
            yield from _cell(study, paths, cell)
        except UserError as error:
            yield str(error)
    yield from _sources(paths)
    yield from _numbers(study, machine)


def _data(paths: StudyPaths, dataset: str) -> Iterator[str]:
    if paths.manifest(dataset).is_file():
        from tnfdt.data.prepared import load

        try:
            load(paths.data(dataset), verify=True)
        except UserError as error:
            yield str(error)


def _cell(study: Study, paths: StudyPaths, cell: Cell) -> Iterator[str]:
    if not paths.record(cell).is_file():
        return
    record = read_record(paths.record(cell), stage="train", study=study.name, cell=cell)
    weights = paths.weights(cell)
    if not weights.is_file():
        yield f"{weights} is missing; run the study again"
    elif sha256_file(weights) != record.get("model_sha256"):
        yield f"{weights} is not the file that its record.json was written for; train again"
    attacks = (paths.attack_record(cell, epsilon) for epsilon in study.attack.epsilons)
    for path in (*attacks, paths.audit_record(cell)):
        if path.is_file():
            stage = "audit" if path == paths.audit_record(cell) else "attack"
            made = read_record(path, stage=stage, study=study.name, cell=cell)
            yield from _made_from(path, made, record)


def _made_from(path: Path, made: Record, training: Record) -> Iterator[str]:
    for key in _MADE_FROM:
        if made.get(key) != training.get(key):
            yield f"{path}: its {key} is not that of the training; run the study again"


def _sources(paths: StudyPaths) -> Iterator[str]:
    """Files that have changed since the tables were made from them."""
    path = paths.tables / "sources.csv"
    if not path.is_file():
        return
    with path.open(newline="", encoding="utf-8") as file:
        recorded = {row.get("file", ""): row.get("sha256") for row in csv.DictReader(file)}
    for name, checksum in recorded.items():
        source = paths.folder / name
        if source.is_file() and sha256_file(source) != checksum:
            yield f"{source} has changed since the tables were made; run the study again"


def _numbers(study: Study, machine: Machine) -> Iterator[str]:
    from tnfdt.evidence.read import load_results

    try:
        load_results(study, Path(machine.results_dir), machine)
    except UserError as error:
        yield str(error)
