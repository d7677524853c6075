"""Checkpoints: a training killed at any instant goes on as if nothing had happened.

The state is written to a temporary name and renamed. Random states need no place in it:
every draw is derived from (seed, stream, epoch, step). It belongs to the code that wrote it:
weights half trained by one code are no result of another.

A finished training is kept under a second name. Snakemake deletes the outputs of a job whose end
it did not live to see: on a cluster, where jobs outlive a killed Snakemake, that would be days of
work. The weights are a hard link, which takes no space and is checked by its checksum; the small
files are copies, safe from a change in place.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tnfdt.files.atomic import atomic_path
from tnfdt.train.code_digest import Code, difference

EXIT_INTERRUPTED = 75  # EX_TEMPFAIL: the same command goes on

State = dict[str, Any]


class Interrupted(Exception):  # noqa: N818 (it is not an error)
    """The job was asked to stop and has saved its state."""


def save(path: Path, state: State, *, identity: str, code: Code) -> None:
    """Write the state of the cell named by `identity`, trained by `code`, atomically."""
    import torch

    with atomic_path(path) as temporary:
        try:
            torch.save({"identity": identity, "code": code, "state": state}, temporary)
        except RuntimeError as error:  # torch's own word for whatever the file system refuses
            raise OSError("torch cannot write it, perhaps because the disk is full") from error


def load(path: Path, *, identity: str, code: Code) -> State | None:
    """The saved state, or None (with a line on stderr) if it is no use to this cell and code."""
    import torch

    if not path.exists():
        return None
    try:
        saved = torch.load(path, map_location="cpu", weights_only=True)
        found, state, wrote = saved["identity"], saved["state"], dict(saved.get("code", {}))
    except Exception as error:  # whatever a torn or foreign file makes torch raise
        reason = f"cannot be read ({type(error).__name__})"
    else:
        if found == identity and wrote == code and isinstance(state, dict):
            return state
        other = f"was written by other code ({difference(wrote, code)})"
        reason = other if found == identity else "belongs to another training"
    tell_useless(path, reason)
    return None


def tell_useless(path: Path, reason: str) -> None:
    print(f"checkpoint {path} {reason}; training starts over", file=sys.stderr, flush=True)


def kept(path: Path) -> Path:
    """Where the second name of a file is."""
    return path.parent / ".kept" / f"{path.name}.kept"


def keep(weights: Path, *small: Path) -> None:
    """Give finished files their second names; a file system without links keeps nothing."""
    with suppress(OSError):
        kept(weights).parent.mkdir(exist_ok=True)
        for path in (weights, *small):
            kept(path).unlink(missing_ok=True)
            if path.suffix == weights.suffix:  # the best epoch's too
                os.link(path, kept(path))
            else:
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


@contextmanager
def stop_requests() -> Iterator[list[int]]:
    """A list that becomes non-empty when SIGTERM or SIGINT asks this process to stop."""
    received: list[int] = []
    before = {
        number: signal.signal(number, lambda signum, _: received.append(signum))
        for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
