"""The evidence bundle as a file: one zip with the files of a study, and a manifest of them.

It is read into a folder of the study's own layout, so that the same readers and the same checks
serve a study that was run here and one that came by mail. Whatever a bundle says is checked before
it is believed, nothing of it is run, and nothing is written outside of that folder.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import stat
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tnfdt.bundle import bitpacking
from tnfdt.files.atomic import atomic_path, read_arrays, sha256_file
from tnfdt.study.paths import WEIGHTS
from tnfdt.study.schema import UserError, validated

SCHEMA = 1
MANIFEST, CRATE, STUDY = "bundle.json", "ro-crate-metadata.json", "study.yaml"
CLAIMS, PUBLISHED, WORKFLOW = "claims.yaml", "published.csv", "Snakefile"
PAPER = "paper.yaml"  # the paper's own study: what its regime is
FOLDERS = ("data", "train", "attack", "audit")
PACKED = ".bits"  # instead of .npz

LARGEST, LARGEST_SUM = 32 * 2**20, 512 * 2**20  # bytes of a file, and of all but weights
_LARGEST_MANIFEST = 64 * 2**20
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the first that a zip can hold: the same files, the same bytes
_AGAIN = "ask for it again, or pack it again"

Content = bytes | Path


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What a bundle says of itself; the keys are those of workflow/schemas/bundle.schema.yaml."""

    study: str
    labs: dict[str, list[str]]  # cells that each named lab has packed
    data: dict[str, str]  # fingerprint by dataset
    code: dict[str, list[str]]  # commits and versions by what they are of
    files: dict[str, dict[str, Any]]

    def sources(self) -> dict[str, str]:
        """SHA-256 of each file of arrays as it was before it was packed, by its name."""
        found = {name: entry.get("source") for name, entry in self.files.items()}
        return {f"{name.removesuffix(PACKED)}.npz": sha for name, sha in found.items() if sha}

    @property
    def has_weights(self) -> bool:
        return any(name.endswith(f"/{WEIGHTS}") for name in self.files)


def pack_arrays(path: Path, source: str | None = None) -> tuple[bytes, dict[str, Any]]:
    """An .npz in the form of the bundle and its entry; courses of floats are left out."""
    arrays = {name: array for name, array in read_arrays(path).items() if array.dtype.kind in "biu"}
    described = bitpacking.describe(arrays)
    return bitpacking.encode(arrays), {"source": source or sha256_file(path), "arrays": described}


def write(
    out: Path,
    members: Mapping[str, Content],
    entries: Mapping[str, dict[str, Any]],
    facts: Mapping[str, Any],
) -> None:
    """Write a bundle whole or not at all. `entries` are of packed arrays, `facts` the rest of the
    manifest; the same content gives the same bytes."""
    files = {name: {"sha256": _sha256(members[name]), **entries.get(name, {})} for name in members}
    manifest = {"schema": SCHEMA, **facts, "files": files}
    text = json.dumps(manifest, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    content = {**members, MANIFEST: text.encode()}
    # A folder is an entry of its own: the RO-Crate speaks of it.
    content |= {f"{top}/": b"" for top in FOLDERS if any(n.startswith(f"{top}/") for n in members)}
    with atomic_path(out) as temporary, zipfile.ZipFile(temporary, "w") as archive:
        for name in sorted(content):
            _add(archive, name, content[name])


def _sha256(content: Content) -> str:
    if isinstance(content, Path):
        return sha256_file(content)
    return hashlib.sha256(content).hexdigest()


def _add(archive: zipfile.ZipFile, name: str, content: Content) -> None:
    info = zipfile.ZipInfo(name, _EPOCH)
    mode = stat.S_IFDIR | 0o755 if info.is_dir() else stat.S_IFREG | 0o644
    info.create_system, info.external_attr = 3, mode << 16
    if isinstance(content, bytes):
        archive.writestr(info, content, zipfile.ZIP_DEFLATED, 9)
        return
    info.file_size = content.stat().st_size  # weights: as they are, they do not get smaller
    with archive.open(info, "w") as target, content.open("rb") as source:
        shutil.copyfileobj(source, target, 2**20)


def unpack(path: Path, folder: Path, *, weights: bool = True) -> Manifest:
    """Check a bundle and write its files to `folder`/{study}, the arrays as .npz again.

    A UserError names the bundle and what is wrong with it.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            infos = _checked(path, archive)
            manifest = _read_manifest(path, archive, infos)
            for name, entry in manifest.files.items():
                if weights or not name.endswith(f"/{WEIGHTS}"):
                    _extract(path, archive, infos[name], entry, folder / manifest.study / name)
    except FileNotFoundError:
        raise UserError(f"{path} does not exist; give the path of an evidence.zip") from None
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise UserError(f"{path} is not a whole bundle ({error}); {_AGAIN}") from None
    return manifest


def _checked(path: Path, archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """The entries by name, whose sizes and kinds are checked before anything is unpacked."""
    folders = {f"{top}/" for top in FOLDERS}
    infos = [info for info in archive.infolist() if info.filename not in folders]
    by_name = {info.filename: info for info in infos}
    if len(by_name) != len(infos):
        raise UserError(f"{path} holds a file twice; {_AGAIN}")
    total = 0
    for info in infos:
        if stat.S_IFMT(info.external_attr >> 16) not in (0, stat.S_IFREG):
            raise UserError(f"{path}: {info.filename!r} is not a plain file; {_AGAIN}")
        stored = info.filename.endswith(f"/{WEIGHTS}") and info.compress_type == zipfile.ZIP_STORED
        most = _LARGEST_MANIFEST if info.filename == MANIFEST else LARGEST
        if not stored:
            total += info.file_size
            if info.file_size > most or total > LARGEST_SUM:
                raise UserError(f"{path}: {info.filename!r} would be too large; {_AGAIN}")
    return by_name


def _read_manifest(
    path: Path, archive: zipfile.ZipFile, infos: Mapping[str, zipfile.ZipInfo]
) -> Manifest:
    if MANIFEST not in infos:
        raise UserError(f"{path} has no {MANIFEST}; it is not an evidence bundle")
    try:
        value = json.loads(archive.read(MANIFEST))
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: {MANIFEST} is not JSON ({error}); {_AGAIN}") from None
    if isinstance(value, dict) and value.get("schema") != SCHEMA:
        raise UserError(
            f"{path} is a bundle of version {value.get('schema')!r:.20}, this tnfdt reads "
            f"{SCHEMA}; use the tnfdt that packed it"
        )
    checked = validated(value, "bundle", f"{path}: {MANIFEST}")
    del checked["schema"]
    manifest = Manifest(**checked)
    wrong = {*infos} ^ {*manifest.files, MANIFEST}
    wrong |= {STUDY, CLAIMS, PUBLISHED, PAPER} - {*manifest.files}
    if wrong:
        raise UserError(f"{path}: {min(wrong)!r} is not both listed and there; {_AGAIN}")
    return manifest


def _extract(
    path: Path,
    archive: zipfile.ZipFile,
    info: zipfile.ZipInfo,
    entry: Mapping[str, Any],
    target: Path,
) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.name == WEIGHTS:
        with archive.open(info) as source, target.open("wb") as file:
            shutil.copyfileobj(source, file, 2**20)
        content: Content = target
    else:
        content = archive.read(info)
    if _sha256(content) != entry["sha256"]:
        raise UserError(f"{path}: {info.filename} was changed after it was packed; {_AGAIN}")
    if isinstance(content, bytes):
        _place(path, info.filename, content, entry, target)


def _place(path: Path, name: str, content: bytes, entry: Mapping[str, Any], target: Path) -> None:
    if "arrays" not in entry:
        target.write_bytes(content)
        return
    import numpy as np

    try:
        arrays = bitpacking.decode(content, entry["arrays"])
    except ValueError as error:
        raise UserError(f"{path}: {name} is not of its arrays ({error}); {_AGAIN}") from None
    with target.with_name(f"{target.name.removesuffix(PACKED)}.npz").open("wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]
