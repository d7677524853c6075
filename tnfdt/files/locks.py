"""Locks for what one process may do at a time: a second one waits, an error leaves no trace."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

from filelock import BaseFileLock, FileLock, Timeout

ALIVE_SECONDS = 120.0  # a job that goes on writes a line to its log every 30 s
_TRIES = 100  # to make a folder that others take away


@contextlib.contextmanager
def exclusive(path: Path, on_wait: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Hold the lock `path`, whose folder is made, while the block runs.

    Work that fails before it wrote anything leaves the disk as it was: the lock and the folders
    made for it are removed again. A process that waits for a lock that is removed makes
    a new one: FileLock does so.
    """
    made = [folder for folder in path.parents if not folder.exists()]
    fresh = not path.exists()
    lock = FileLock(path)
    _acquire(lock, path.parent, on_wait)
    try:
        yield
    except Exception:
        if fresh:
            path.unlink(missing_ok=True)
        _remove_empty(made)
        raise
    finally:
        lock.release()


def is_held(path: Path | str) -> bool:
    """Whether a process holds this lock, as far as the file system knows."""
    import fcntl

    with contextlib.suppress(OSError), open(path, "rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _acquire(lock: BaseFileLock, folder: Path, on_wait: Callable[[], None]) -> None:
    patience, vanished = 0.0, 0
    while not lock.is_locked:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock.acquire(timeout=patience)
        except Timeout:
            on_wait()
            patience = -1  # forever
        except FileNotFoundError:  # the one before failed and removed its folder: make it again
            vanished += 1
            if vanished == _TRIES:  # no folder can be made here
                raise


def _remove_empty(folders: list[Path]) -> None:
    for folder in folders:  # innermost first
        with contextlib.suppress(OSError):
            folder.rmdir()
