"""clean.npz: which test images a trained network classifies right; the one reader of it."""

from __future__ import annotations

from pathlib import Path

from tnfdt.files.atomic import Array, read_arrays
from tnfdt.study.schema import UserError


def read_clean(path: Path) -> Array:
    """Right or wrong on each test image, bool [M]."""
    correct = read_arrays(path).get("correct")
    if correct is None or correct.dtype != bool or correct.ndim != 1 or not correct.size:
        raise UserError(f"{path}: correct is not one bool per test image; train again")
    return correct
