"""A user's own dataset: an .npz with train_x, train_y, test_x, test_y.

Images are [N, H, W, 3] uint8, or grey as [N, H, W] or [N, H, W, 1]; labels are [N] integers
that count from 0. Nothing in the file is unpickled.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tnfdt.data.arrays import Array, Arrays, channels_first
from tnfdt.files.atomic import refuse_bomb
from tnfdt.study.schema import UserError


def read_npz(path: Path) -> Arrays:
    """The arrays of a user's file, every one checked; one clear line if it cannot be used."""
    loaded = _load(path)
    splits: list[Array] = []
    for split in ("train", "test"):
        images, labels = loaded[f"{split}_x"], loaded[f"{split}_y"]
        _check_images(images, f"{path}: {split}_x")
        _check_labels(labels, f"{path}: {split}_y")
        if len(images) != len(labels):
            raise UserError(
                f"{path}: {split}_x has {len(images)} images, {split}_y {len(labels)} labels; "
                "give one label an image"
            )
        splits += [channels_first(images), labels.astype(np.int64)]
    arrays = Arrays(*splits)
    if arrays.train_x.shape[1:] != arrays.test_x.shape[1:]:
        shapes = [f"{images.shape[2]}x{images.shape[3]}" for images in (arrays[0], arrays[2])]
        raise UserError(
            f"{path}: train_x is {shapes[0]}, test_x {shapes[1]}; give both the same size"
        )
    return arrays


def _load(path: Path) -> dict[str, Array]:
    if not path.is_file():
        raise UserError(f"{path} does not exist or is no file; give the path of an .npz")
    import psutil

    try:
        refuse_bomb(path, psutil.virtual_memory().available)
        # numpy.load would take any .npy or pickle: the type is settled here.
        with path.open("rb") as file, np.lib.npyio.NpzFile(file, allow_pickle=False) as archive:
            missing = [key for key in Arrays._fields if key not in archive.files]
            found = {} if missing else {key: archive[key] for key in Arrays._fields}
            if any(isinstance(value, bytes) for value in found.values()):
                raise ValueError("a member is no .npy array")
    except Exception as error:  # whatever a damaged file makes numpy, zipfile and zlib raise
        reason = " ".join(str(error).split())
        raise UserError(
            f"{path} is not a readable .npz ({reason}); write it again with numpy.savez"
        ) from None
    if missing:
        raise UserError(f"{path}: {', '.join(missing)} is missing; see numpy.savez to add it")
    return found


def _check_images(images: Any, where: str) -> None:
    if images.dtype != np.uint8:
        raise UserError(f"{where} is {images.dtype}, expected uint8 pixels from 0 to 255")
    shape = images.shape
    if images.ndim not in (3, 4) or (images.ndim == 4 and shape[3] not in (1, 3)):
        hint = "; transpose (0, 2, 3, 1)" if images.ndim == 4 and shape[1] in (1, 3) else ""
        raise UserError(f"{where} is {list(shape)}, expected [N, H, W, 3] or grey [N, H, W]{hint}")
    if not images.size:
        raise UserError(f"{where} is empty ({list(shape)}); give at least one image")


def _check_labels(labels: Any, where: str) -> None:
    if labels.dtype.kind not in "iu":
        raise UserError(f"{where} is {labels.dtype}, expected integer classes 0, 1, 2, …")
    if labels.ndim != 1:
        raise UserError(f"{where} is {list(labels.shape)}, expected [N]")
    if labels.size and labels.max() > np.iinfo(np.int64).max:  # would wrap around below zero
        raise UserError(f"{where}: a label is {labels.max()}; number the classes 0, 1, 2, …")
