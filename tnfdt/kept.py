"""A second name for finished files, so that a finished training is never lost.

Snakemake deletes the outputs of a job whose end it did not live to see: on a cluster, where jobs
outlive a killed Snakemake, that would be days of work. Hard links take no space.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path


def kept(path: Path) -> Path:
    """Where the second name of a file is."""
    return path.parent / ".kept" / f"{path.name}.kept"


def keep(paths: Sequence[Path]) -> None:
    """Give finished files their second names; a file system without links keeps nothing."""
    with contextlib.suppress(OSError):
        for path in paths:
            kept(path).parent.mkdir(exist_ok=True)
            kept(path).unlink(missing_ok=True)
            os.link(path, kept(path))


def restore(paths: Sequence[Path]) -> bool:
    """Give the files their first names back, in this order; False if not all are kept."""
    if not all(kept(path).is_file() for path in paths):
        return False
    for path in paths:
        path.unlink(missing_ok=True)
        os.link(kept(path), path)
    return True
