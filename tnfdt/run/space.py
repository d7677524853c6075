"""Room on the disk, checked before a run and after one that failed; quotas are not seen.

A job on a full disk says in its log what is wrong, but the log may be on that same disk.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from tnfdt.study.schema import UserError

LEAST = 1 << 20  # bytes without which not even Snakemake's own files can be written
LITTLE = 100 << 20  # bytes below which a full disk may be the cause of a failure


def require(*folders: str) -> None:
    """Refuse to begin where not even a log can be written."""
    for folder in folders:
        if (free := left(Path(folder))) < LEAST:
            raise UserError(
                f"no space left in {Path(folder).absolute()} ({free >> 10} kB); free some and "
                "start the same command again"
            )


def hint(folder: str) -> str:
    """What to say after a failure: nothing where there is room."""
    free = left(Path(folder))
    if free >= LITTLE:
        return ""
    return (
        f"tnfdt: only {free >> 20} MB are left in {Path(folder).absolute()}; if that was too "
        "little, free some and start the same command again"
    )


def left(folder: Path) -> int:
    """Free bytes on the disk of a folder that may not exist yet."""
    usage = shutil.disk_usage(existing(folder))
    return usage.free if usage.total else LITTLE  # some file systems do not say


def existing(folder: Path) -> Path:
    """The folder, or the nearest one above it that exists."""
    place = folder.absolute()
    while not place.exists():
        place = place.parent
    return place
