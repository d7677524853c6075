"""Stage 1: the prepared copy of a dataset, one uint8 array a file, with a manifest.

The copy is built in a hidden folder beside its place, moved file by file, and its manifest
appears last, by rename: a copy without a manifest does not exist. A lock makes a second process
wait for the first and then use its copy.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tnfdt.data.arrays import (
    Array,
    Arrays,
    class_counts,
    count_classes,
    describe,
    fingerprint,
    limited,
    picked,
)
from tnfdt.data.npz import read_npz
from tnfdt.data.official import NO_SPACE, DownloadError, how_to_get
from tnfdt.data.official import download as download_files
from tnfdt.data.prepared import SCHEMA, find_ready
from tnfdt.data.registry import DATASETS
from tnfdt.data.sources import Found
from tnfdt.files.atomic import sha256_file, write_json
from tnfdt.files.locks import exclusive
from tnfdt.study.machine import Machine
from tnfdt.study.paths import MANIFEST
from tnfdt.study.schema import UserError
from tnfdt.study.study import Limit, Study

Manifest = dict[str, Any]
log = logging.getLogger(__name__)


def prepare(
    name: str,
    out: Path,
    *,
    data_dir: Path,
    path: Path | None = None,
    positions: Path | None = None,
    limit: Limit | None = None,
    download: bool = True,
) -> Manifest:
    """Write the prepared copy of dataset `name` into folder `out` and return its manifest.

    `path` is an .npz to read instead of the registered set, `positions` names the images of the
    set that count. A copy that is there already and answers the same request is kept.
    """
    if path is None and name not in DATASETS:
        known = ", ".join(DATASETS)
        raise UserError(f"dataset {name!r} is not one of {known}; give it a `path` to an .npz")
    with _one_line(out), _locked(out):
        request = _request(name, path, positions, limit)
        manifest = find_ready(out, request)
        if manifest is None:
            with _staging(out) as staging:
                found = _read(path) if path else _obtain(name, data_dir, staging, download)
                if positions:
                    found = found._replace(arrays=picked(found.arrays, positions))
                manifest = _write(found, staging, request, limit)
                _publish(staging, out, manifest)
        return manifest


def prepare_for(study: Study, dataset: str, machine: Machine, out: Path) -> Manifest:
    """Prepare a dataset as a study asks for it, from what this machine has."""
    path = study.dataset_path(dataset, machine)
    return prepare(
        dataset,
        out,
        data_dir=Path(machine.data_dir),
        path=Path(path) if path else None,
        positions=study.sample_positions(dataset, machine),
        limit=study.limit,
    )


def _request(name: str, path: Path | None, positions: Path | None, limit: Limit | None) -> Manifest:
    """What a copy depends on; the official sets are the same everywhere, a user's file is not."""
    if path is not None and not path.is_file():
        raise UserError(f"{name}: {path} does not exist or is no file; give the path of an .npz")
    return {
        "schema": SCHEMA,
        "stage": "data",
        "dataset": name,
        "limit": {"train": limit and limit.train, "test": limit and limit.test},
        "npz_sha256": path and sha256_file(path),
        "positions_sha256": positions and sha256_file(positions),
    }


def _read(path: Path) -> Found:
    return Found(read_npz(path), path.name, {})


def _obtain(name: str, data_dir: Path, work: Path, download: bool) -> Found:
    """Read the official files, after downloading them where they are nowhere to be found."""
    entry, reason = DATASETS[name], ""
    found = entry.read(data_dir, work)
    if found is None and download:
        log.info("%s: downloading %s to %s", name, entry.title, data_dir)
        try:
            download_files(entry.files(), data_dir)
            found = entry.read(data_dir, work)
        except DownloadError as error:
            reason = f" and the download failed ({' '.join(str(error).split())})"
    if found is not None:
        return found
    wanted = how_to_get(entry.files(), data_dir)
    other = f", or {entry.alternative}" if entry.alternative else ""
    raise UserError(
        f"{name}: {entry.title} is not in {data_dir}{reason}; put it there as {wanted}{other}"
    )


def _write(found: Found, folder: Path, request: Manifest, limit: Limit | None) -> Manifest:
    """Write the arrays, as far as the limit goes, into `folder` and return the manifest."""
    name = request["dataset"]
    official = DATASETS[name].images.classes if request["npz_sha256"] is None else None
    num_classes = count_classes(found.arrays, f"{name} ({found.source})", official)
    arrays = limited(found.arrays, limit, num_classes, name)
    for key, array in arrays._asdict().items():
        _write_npy(folder / f"{key}.npy", array)
    described = {key: describe(array) for key, array in arrays._asdict().items()}
    return request | {
        "source": found.source,
        "official_checksums": found.checksums,
        "fingerprint": fingerprint(described),
        "num_classes": num_classes,
        "counts": {
            "train": class_counts(arrays.train_y, num_classes),
            "test": class_counts(arrays.test_y, num_classes),
        },
        "arrays": described,
    }


def _write_npy(path: Path, array: Array) -> None:
    """numpy.save, except that a full disk is reported as one (ndarray.tofile drops the cause)."""
    header = np.lib.format.header_data_from_array_1_0(array)
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        file.write(array.data)
        file.flush()
        os.fsync(file.fileno())


def _publish(staging: Path, out: Path, manifest: Manifest) -> None:
    """Move the arrays to their place, the manifest last: by renames, which need no space."""
    write_json(staging / MANIFEST, manifest)
    out.mkdir(parents=True, exist_ok=True)
    (out / MANIFEST).unlink(missing_ok=True)
    for file in (*(f"{key}.npy" for key in Arrays._fields), MANIFEST):
        (staging / file).replace(out / file)


@contextlib.contextmanager
def _staging(out: Path) -> Iterator[Path]:
    """An empty folder beside `out`, removed in the end; what a killed process left goes first."""
    folder = out.with_name(f".{out.name}.partial")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _locked(out: Path) -> Iterator[None]:
    def on_wait() -> None:
        log.info("%s: another process prepares it, waiting", out)

    with exclusive(out.with_name(f".{out.name}.lock"), on_wait):
        yield


@contextlib.contextmanager
def _one_line(out: Path) -> Iterator[None]:
    """Turn what the file system refuses into one line."""
    try:
        yield
    except OSError as error:
        place = error.filename or out
        if error.errno in NO_SPACE:
            raise UserError(f"no space left to prepare {out}; free some and run again") from error
        raise UserError(f"{place}: {error.strerror or error}; fix it and run again") from error
