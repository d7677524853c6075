"""The lock of a Snakemake that was killed, and jobs that end with the Snakemake that started them.

Snakemake's own lock is a file: a Snakemake that is killed leaves it behind, and the next one
refuses to start. Its jobs run on, and what they finish is made again. So a run also holds a
lock of the system's, which goes with its process, and its jobs watch that process.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from tnfdt.files.atomic import namespace

PARENT = "TNFDT_PARENT"  # the Snakemake whose jobs have it in their environment
REMOTE = "TNFDT_REMOTE"  # in the environment of what a Snakemake has submitted to a cluster
SNAKEMAKE = Path(".snakemake")

_held: list[int] = []  # descriptors that stay open as long as this process lives


def take_part(is_main: bool, is_free: Callable[[], bool]) -> None:
    """Take part as a Snakemake: a run, the report that a run makes, or (not main) the inner
    one of a cluster job, which must outlive the run that submitted it.

    is_free: whether a lock that nobody alive holds may go.
    """
    if not is_main:
        os.environ.pop(PARENT, None)
        os.environ[REMOTE] = "yes"
    elif PARENT in os.environ:
        end_with_run()
    else:
        hold(SNAKEMAKE, is_free)
        os.environ[PARENT] = f"{namespace()} {os.getpid()}"


def hold(folder: Path, is_free: Callable[[], bool]) -> None:
    """Hold the folder together with others that live; remove the lock that dead ones left."""
    with contextlib.suppress(OSError):  # of another user, no flock here: Snakemake's lock counts
        folder.mkdir(exist_ok=True)
        handle = os.open(folder / "tnfdt.lock", os.O_RDWR | os.O_CREAT, 0o644)
        _held.append(handle)
        with contextlib.suppress(BlockingIOError):  # another one lives
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove_left(folder / "locks", handle, is_free)
        fcntl.flock(handle, fcntl.LOCK_SH)


def _remove_left(locks: Path, handle: int, is_free: Callable[[], bool]) -> None:
    """Remove the lock of a dead run of this machine: flock may not see those of another one."""
    left, here = list(locks.glob("*.lock")), _machine()
    if left and os.pread(handle, len(here) + 1, 0) == here and is_free():
        wake()
        for path in left:
            path.unlink(missing_ok=True)
        left = []
    if not left:
        os.ftruncate(handle, 0)
        os.pwrite(handle, here, 0)


def wake() -> None:
    """Let stopped jobs of dead runs in this folder go on, that is, notice it and end: they hold
    the locks of their cells."""
    import psutil

    here, place = os.getcwd(), namespace()
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            where, _, pid = process.environ().get(PARENT, "").rpartition(" ")
            stopped = process.status() == psutil.STATUS_STOPPED and process.cwd() == here
            if stopped and where == place and not psutil.pid_exists(int(pid)):
                process.resume()


def _machine() -> bytes:
    """A name of this machine that no other has."""
    try:
        number = Path("/etc/machine-id").read_bytes().strip()
    except OSError:
        number = b""
    return socket.gethostname().encode() + b" " + number


def end_with_run() -> None:
    """End this process, as SIGTERM does, when the Snakemake that started it is gone."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    place, _, pid = os.environ.get(PARENT, "").rpartition(" ")
    if not pid or place != namespace() or not hasattr(os, "pidfd_open"):
        return
    try:
        handle = os.pidfd_open(int(pid))
    except ProcessLookupError:
        sys.exit(128 + signal.SIGTERM)
    except OSError:  # forbidden in this container
        return
    threading.Thread(target=_watch, args=[handle], daemon=True).start()


def _watch(handle: int) -> None:
    select.select([handle], [], [])
    os.kill(os.getpid(), signal.SIGTERM)
