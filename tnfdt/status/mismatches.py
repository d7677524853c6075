"""`tnfdt status --check`: are the files of a study those that its records were written for."""

from __future__ import annotations

import csv
import tempfile
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
    found = list(dict.fromkeys(mismatches(study, machine)))  # networks may be shared
    paths = machine.paths(study.name)
    trained = sum(paths.record(cell).is_file() for cell in study.cells)
    good = f"{trained} of {len(study.cells)} trainings, all files are those of their records"
    print(*found or [f"{study.name}: {good}"], sep="\n")
    return int(bool(found))


def mismatches(study: Study, machine: Machine) -> Iterator[str]:
    """Weights, attacks and audits against the training's record; images against their manifest;
    all that was packed against evidence.zip; what the tables were made from against sources.csv;
    arrays against the numbers of records, and tables against both."""
    paths = machine.paths(study.name)
    for dataset in study.grid_datasets:
        yield from _data(paths, dataset)
    for cell in (*study.cells, *study.variants):
        try:
            yield from _cell(study, paths, cell)
        except UserError as error:
            yield str(error)
    if any(paths.record(cell).is_file() for cell in study.cells):  # else tables came alone
        yield from _changed(paths)
        yield from _tables(study, machine)


def _data(paths: StudyPaths, dataset: str) -> Iterator[str]:
    if paths.manifest(dataset).is_file():
        from tnfdt.data.prepared import load

        try:
            load(paths.data(dataset), verify=True)
        except UserError as error:
            yield str(error)


def _cell(study: Study, paths: StudyPaths, cell: Cell) -> Iterator[str]:
    network = study.trained_as(cell)  # another cell where a reading changes the attack alone
    if not paths.record(network).is_file():
        return
    record = read_record(paths.record(network), stage="train", study=study.name, cell=network)
    weights = paths.weights(network)
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


def _changed(paths: StudyPaths) -> Iterator[str]:
    """Files that are not as they were when the evidence was packed or the tables were made."""
    recorded = dict(_sources(paths))
    try:
        recorded |= _packed(paths)
    except UserError as error:
        yield str(error)
    for name, checksum in recorded.items():
        source = paths.folder / name
        if not source.is_file():
            yield f"{source} is missing; run the study again"
        elif sha256_file(source) != checksum:
            yield f"{source} has changed since the tables were made; run the study again"


def _sources(paths: StudyPaths) -> Iterator[tuple[str, str]]:
    if paths.sources.is_file():
        with paths.sources.open(newline="", encoding="utf-8", errors="replace") as file:
            for row in csv.DictReader(file):
                yield row.get("file") or "", row.get("sha256") or ""


def _packed(paths: StudyPaths) -> dict[str, str]:
    """Checksums of the results in evidence.zip, by their name in the study's folder."""
    from tnfdt.bundle import archive

    if not paths.evidence.is_file():
        return {}
    with tempfile.TemporaryDirectory(prefix="tnfdt-check-") as scratch:
        manifest = archive.unpack(paths.evidence, Path(scratch), weights=False)
    if manifest.study != paths.folder.name:
        raise UserError(f"{paths.evidence} is of study {manifest.study}; pack this one again")
    # Not those of the data: a bundle has less of their manifests.
    results = (*(f"{top}/" for top in archive.FOLDERS if top != "data"), paths.activations.name)
    plain = {
        name: entry["sha256"]
        for name, entry in manifest.files.items()
        if name.startswith(results) and "source" not in entry
    }
    return plain | manifest.sources()


def _tables(study: Study, machine: Machine) -> Iterator[str]:
    """Whether the records can be read, and whether the tables are those that follow from them."""
    from tnfdt.tables import stage

    folder = Path(machine.results_dir)
    try:
        texts = stage.texts(stage.load(study, folder, machine, variants=study.multiverse.include))
    except UserError as error:
        yield str(error)
        return
    for name, text in texts.items():
        path = folder / study.name / name
        if path.is_file() and path.read_bytes() != text.encode():
            yield f"{path} does not follow from the records; run the study again"
