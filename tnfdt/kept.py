"""A second name for finished files, so that a finished training is never lost.

Snakemake deletes the outputs of a job whose end it did not live to see: on a cluster, where jobs
outlive a killed Snakemake, that would be days of work. The weights are a hard link, which takes
no space and is checked by its checksum; the small files are copies, safe from a change in place.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

from tnfdt.records import atomic_path


def kept(path: Path) -> Path:
    """Where the second name of a file is."""
    return path.parent / ".kept" / f"{path.name}.kept"


def keep(weights: Path, *small: Path) -> None:
    """Give finished files their second names; a file system without links keeps nothing."""
    with contextlib.suppress(OSError):
        kept(weights).parent.mkdir(exist_ok=True)
        kept(weights).unlink(missing_ok=True)
        os.link(weights, kept(weights))
        for path in small:
            shutil.copy2(path, kept(path))


def restore(weights: Path, *small: Path) -> bool:
    """Put the files back, in this order; False if not all are kept."""
    if not all(kept(path).is_file() for path in (weights, *small)):
        return False
    weights.unlink(missing_ok=True)
    os.link(kept(weights), weights)
    for path in small:
        with atomic_path(path) as temporary:
            shutil.copy2(kept(path), temporary)
    return True
