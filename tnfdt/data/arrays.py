"""The four arrays of a dataset: what they must look like, a stratified part, a fingerprint."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tnfdt.core.seeding import generator
from tnfdt.files.atomic import read_json
from tnfdt.study.schema import UserError
from tnfdt.study.study import Limit

Array = NDArray[Any]


class Arrays(NamedTuple):
    """Images [N, C, H, W] uint8 and labels [N] int64 of both splits."""

    train_x: Array
    train_y: Array
    test_x: Array
    test_y: Array


def channels_first(images: Array) -> Array:
    """Images [N, H, W, C], or grey as [N, H, W] or [N, H, W, 1] -> [N, 3, H, W], contiguous."""
    if images.ndim == 3:
        images = images[..., None]
    if images.shape[-1] == 1:
        images = np.broadcast_to(images, (*images.shape[:3], 3))
    return np.ascontiguousarray(images.transpose(0, 3, 1, 2))


def count_classes(arrays: Arrays, where: str, num_classes: int | None = None) -> int:
    """The number of classes, after checking that the training split has every one of them."""
    labels = np.concatenate([arrays.train_y, arrays.test_y])
    if labels.min() < 0:
        raise UserError(f"{where}: a label is {labels.min()}; labels count from 0")
    expected = int(labels.max()) + 1 if num_classes is None else num_classes
    if labels.max() >= expected:
        raise UserError(f"{where}: a label is {labels.max()}, expected 0 to {expected - 1}")
    # Checked before counting: one stray label of a billion must not allocate a billion counters.
    present = np.unique(arrays.train_y)
    if len(present) < expected:
        missing = int(np.append(present != np.arange(len(present)), True).argmax())
        raise UserError(
            f"{where}: class {missing} has no training image; every class 0 to {expected - 1} "
            "needs one, so number the labels without gaps or add images"
        )
    return expected


def class_counts(labels: Array, num_classes: int) -> list[int]:
    """Images per class."""
    counts: list[int] = np.bincount(labels, minlength=num_classes).tolist()
    return counts


def stratified(labels: Array, count: int, stream: str) -> Array:
    """Positions [count], ascending, of a random part with the classes in their proportions.

    Every image gets its random rank within its class, as a fraction of the class; the smallest
    fractions are taken. So each class has its share to within an image, the rarest has at least
    one where count >= classes, and a larger part contains every smaller one.
    """
    import torch  # here: Snakemake reads the list of datasets, and needs no torch for it

    chance = torch.rand(len(labels), generator=generator(0, stream), dtype=torch.float64).numpy()
    by_class = np.lexsort((chance, labels))
    sizes = np.bincount(labels)
    starts = np.cumsum(sizes) - sizes
    fraction = np.empty(len(labels))
    rank = np.arange(len(labels)) - starts[labels[by_class]]
    fraction[by_class] = rank / sizes[labels[by_class]]
    return np.sort(np.lexsort((chance, fraction))[:count])


def picked(arrays: Arrays, positions: Path) -> Arrays:
    """The images at the positions in a JSON file, {"train": [...], "test": [...]}, in its order."""
    chosen = read_json(positions)
    try:
        train, test = (np.array(chosen[split], dtype=np.int64) for split in ("train", "test"))
        return Arrays(
            arrays.train_x[train], arrays.train_y[train], arrays.test_x[test], arrays.test_y[test]
        )
    except (KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
        raise UserError(f"{positions} does not fit the dataset ({error}); restore it") from None


def limited(arrays: Arrays, limit: Limit | None, num_classes: int, where: str) -> Arrays:
    """The stratified, seeded part that `limit` asks for, in the original order."""
    if limit is None:
        return arrays
    parts: list[Array] = []
    for split, smallest in (("train", num_classes), ("test", 1)):
        images, labels = getattr(arrays, f"{split}_x"), getattr(arrays, f"{split}_y")
        count = getattr(limit, split)
        if count is not None and count < smallest:
            raise UserError(f"{where}: limit.{split} is {count}, expected {smallest} or more")
        if count is not None and count < len(labels):
            chosen = stratified(labels, count, f"limit/{split}")
            images, labels = images[chosen], labels[chosen]
        parts += [images, labels]
    return Arrays(*parts)


def describe(array: Array) -> dict[str, Any]:
    """Shape, type and SHA-256 of an array's content."""
    content = hashlib.sha256(np.ascontiguousarray(array).data).hexdigest()
    return {"shape": list(array.shape), "dtype": str(array.dtype), "sha256": content}


def fingerprint(described: dict[str, dict[str, Any]]) -> str:
    """SHA-256 over names, shapes, types, pixels and labels of all arrays."""
    return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()
