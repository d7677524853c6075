"""Which code a training belongs to: its sources and the libraries that compute it.

A checkpoint is continued only by the code that wrote it. A commit names too much for that: one
that touches only documents or tables must not cost half-trained cells.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import cache
from importlib import metadata
from pathlib import Path

_PACKAGE = Path(__file__).parents[1]
_SOURCES = ("core", "models.py", "devices.py", "data", "train")  # what decides a training
_LIBRARIES = ("torch", "timm")

Code = dict[str, str]


@cache
def training_code() -> Code:
    """The digest of the sources that decide a training, and the versions of torch and timm."""
    versions = {library: metadata.version(library) for library in _LIBRARIES}
    return {"sources": digest_sources(_PACKAGE / name for name in _SOURCES), **versions}


def digest_sources(places: Iterable[Path]) -> str:
    """A short digest of the names and bytes of Python files, given as files or folders."""
    total = hashlib.sha256()
    for place in places:
        for path in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
            content = hashlib.sha256(path.read_bytes()).hexdigest()
            total.update(f"{path.relative_to(place.parent).as_posix()} {content}\n".encode())
    return total.hexdigest()[:16]


def difference(before: Code, now: Code) -> str:
    """What is not the same, for a message: `sources 1a2b…, now 3c4d…`."""
    keys = [key for key in now if before.get(key) != now[key]]
    return ", ".join(f"{key} {before.get(key, 'unknown')}, now {now[key]}" for key in keys)
