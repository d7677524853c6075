"""Reading a prepared copy: memory-mapped, checked against its manifest."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from tnfdt.data.arrays import Array, Arrays, describe, fingerprint
from tnfdt.files.atomic import read_json
from tnfdt.study.paths import MANIFEST
from tnfdt.study.schema import UserError

SCHEMA = 1

_KEYS = {"arrays", "fingerprint", "num_classes"}
_AGAIN = "delete the folder and prepare the data again"


@dataclass(frozen=True, kw_only=True)
class ImageSet:
    """Images [N, C, H, W] uint8 and labels [N] int64 of both splits, on one device."""

    train_x: Tensor
    train_y: Tensor
    test_x: Tensor
    test_y: Tensor
    num_classes: int
    fingerprint: str


def load(folder: Path, device: str | torch.device = "cpu", *, verify: bool = False) -> ImageSet:
    """The prepared copy in `folder`. On the CPU it stays memory-mapped.

    Types, shapes and sizes are always held against the manifest; `verify` also hashes every
    pixel and label.
    """
    manifest = _read_manifest(folder)
    arrays = _open_all(folder, manifest)
    if verify:
        _verify(folder, arrays, manifest)
    tensors = {key: torch.from_numpy(array).to(device) for key, array in arrays.items()}
    return ImageSet(
        **tensors, num_classes=manifest["num_classes"], fingerprint=manifest["fingerprint"]
    )


def find_ready(folder: Path, request: dict[str, Any]) -> dict[str, Any] | None:
    """The manifest of the copy in `folder`, if it is whole and answers the request."""
    try:
        manifest = _read_manifest(folder)
        _open_all(folder, manifest)
    except UserError:
        return None
    return manifest if all(manifest.get(key) == request[key] for key in request) else None


def _read_manifest(folder: Path) -> dict[str, Any]:
    path = folder / MANIFEST
    manifest = read_json(path)
    if not _is_manifest(manifest):
        raise UserError(f"{path} is not a manifest of this version; delete {folder} and run again")
    return cast(dict[str, Any], manifest)


def _is_manifest(value: Any) -> bool:
    if not isinstance(value, dict) or value.get("schema") != SCHEMA or not {*value} >= _KEYS:
        return False
    arrays, classes = value["arrays"], value["num_classes"]
    return (
        isinstance(arrays, dict)
        and all(isinstance(entry, dict) for entry in arrays.values())
        and isinstance(value["fingerprint"], str)
        and isinstance(classes, int)
        and classes > 0
    )


def _open_all(folder: Path, manifest: dict[str, Any]) -> dict[str, Array]:
    return {key: _open(folder, key, manifest["arrays"].get(key, {})) for key in Arrays._fields}


def _open(folder: Path, key: str, expected: dict[str, Any]) -> Array:
    """One array, mapped copy-on-write: writing to the tensor does not change the file."""
    path = folder / f"{key}.npy"
    try:
        array = np.load(path, mmap_mode="c", allow_pickle=False)
        whole = path.stat().st_size == array.offset + array.nbytes
    except Exception as error:  # whatever a damaged file makes numpy raise
        raise UserError(f"{path} is unreadable ({error}); {_AGAIN}") from None
    if not whole or [list(array.shape), str(array.dtype)] != [
        expected.get("shape"),
        expected.get("dtype"),
    ]:
        raise UserError(f"{path} is not the array of its manifest; {_AGAIN}")
    return cast(Array, array)


def _verify(folder: Path, arrays: dict[str, Array], manifest: dict[str, Any]) -> None:
    found = {key: describe(array) for key, array in arrays.items()}
    for key, described in found.items():
        if described != manifest["arrays"][key]:
            raise UserError(f"{folder / key}.npy has changed since it was prepared; {_AGAIN}")
    if fingerprint(found) != manifest["fingerprint"]:
        raise UserError(f"{folder / MANIFEST}: the fingerprint is wrong; {_AGAIN}")
    classes = manifest["num_classes"]
    if max(arrays["train_y"].max(), arrays["test_y"].max()) >= classes:
        raise UserError(f"{folder / MANIFEST}: a label is no class of {classes}; {_AGAIN}")
