"""A bundle opened again: tables, verdicts and figures of a study from it alone."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from tnfdt.bundle import archive
from tnfdt.bundle.archive import CLAIMS, PAPER, PUBLISHED, STUDY, Manifest
from tnfdt.bundle.pack import Raw, check_current
from tnfdt.evidence.read import load_results
from tnfdt.files.atomic import atomic_path
from tnfdt.study.machine import machine_from_dict
from tnfdt.study.schema import UserError, read_yaml, validated
from tnfdt.study.study import study_from_dict
from tnfdt.tables import stage
from tnfdt.tables.stage import Material


def rebuild(path: Path, out: Path, parts: Sequence[str] | None = None) -> list[Path]:
    """Tables, verdicts and figures of a bundle into folder `out`; reads nothing else."""
    with opened(path) as material:
        made = stage.make(material, parts)
        if not made:
            raise UserError(f"{path} has no networks to make {', '.join(parts or ())} of")
        return [_copy(file, out / file.relative_to(material.results.folder)) for file in made]


def _copy(source: Path, target: Path) -> Path:
    with atomic_path(target) as temporary:
        shutil.copyfile(source, temporary)
    return target


@contextlib.contextmanager
def opened(path: Path, *, weights: bool = False) -> Iterator[Material]:
    """What a bundle holds, unpacked into a folder that is gone afterwards."""
    with scratch_folder(path) as scratch:
        manifest = archive.unpack(path, scratch, weights=weights)
        yield make_material(scratch / manifest.study, [manifest], read_raw(scratch, manifest))


@contextlib.contextmanager
def scratch_folder(path: Path) -> Iterator[Path]:
    """A temporary folder, in messages called by the name of the bundle."""
    with tempfile.TemporaryDirectory(prefix="tnfdt-evidence-") as scratch:
        try:
            yield Path(scratch)
        except UserError as error:
            raise UserError(str(error).replace(f"{scratch}/", f"{path}: ")) from None


def read_raw(scratch: Path, manifest: Manifest) -> Raw:
    path = scratch / manifest.study / STUDY
    return validated(read_yaml(path), "study", str(path))


def make_material(folder: Path, manifests: Sequence[Manifest], raw: Raw) -> Material:
    study = study_from_dict(raw, name=folder.name, where=str(folder / STUDY), folder=folder)
    included = study.multiverse.include
    results = load_results(study, folder.parent, machine_from_dict({}), variants=included)
    sources = {name: sha for manifest in manifests for name, sha in manifest.sources().items()}
    check_current(results)
    return Material(
        results=replace(stage.at_complete_look(results), sha256s=sources),
        claims=folder / CLAIMS,
        published=folder / PUBLISHED,
        paper=folder / PAPER,
        labs=_labs(manifests),
        pictures=False,
    )


def _labs(manifests: Sequence[Manifest]) -> dict[str, list[str]]:
    names = sorted({lab for manifest in manifests for lab in manifest.labs})
    found = {lab: {cell for m in manifests for cell in m.labs.get(lab, ())} for lab in names}
    return {lab: sorted(cells) for lab, cells in found.items()}
