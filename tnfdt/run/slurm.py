"""Questions to Slurm: the jobs of this folder, and more time for a job that has run out of it.

A job that can stop and go on ends by itself shortly before its time limit and has Slurm put it
back into the queue. To Snakemake it is the same job all the time, so nothing counts as failed.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tnfdt.run.lifeline import REMOTE
from tnfdt.study.paths import CHECKPOINT, PARTIAL
from tnfdt.study.schema import ROOT, UserError
from tnfdt.train.checkpoint import Interrupted

SHIMS = ROOT / "profiles/slurm/bin"
MARGIN = 120.0  # seconds before the end of its time in which a job stops; half of a short limit
_COMMENT = re.compile(r"rule_(?P<rule>\w+?)(?:_wildcards_(?P<wildcards>.*))?$")
_LEFT = re.compile(r"(?:(?:(\d+)-)?(\d+):)?(\d+):(\d+)$")  # [[days-]hours:]minutes:seconds
_PATIENCE = 30.0  # seconds for an answer of Slurm
_TO_BE_ENDED = 180.0  # seconds in which Slurm ends a job that it has put back into the queue


class ClusterJob(NamedTuple):
    """A job that waits or runs; Snakemake's executor writes rule and wildcards into its comment."""

    number: str
    state: str
    reason: str
    rule: str
    wildcards: str  # dataset_model_method_seed, and of an attack _epsilon


def answer_for_sacct() -> None:
    """Put our `sacct` in front of Slurm's, for Snakemake's executor; see profiles/slurm/bin."""
    os.environ["PATH"] = os.pathsep.join([str(SHIMS), os.environ["PATH"]])


def jobs() -> list[ClusterJob] | None:
    """The user's jobs that Snakemake submitted from this folder; None if Slurm does not answer."""
    text = _ask("squeue", "--me", "--noheader", "--format=%i|%T|%r|%k|%Z")
    if text is None:
        return None
    here, found = os.path.realpath(os.curdir), []
    for line in text.splitlines():
        number, state, reason, comment, folder = line.split("|", 4)
        made = _COMMENT.match(comment)
        if made and os.path.realpath(folder) == here:
            found.append(ClusterJob(number, state, reason, made["rule"], made["wildcards"] or ""))
    return found


@contextlib.contextmanager
def in_time(out: Path) -> Iterator[None]:
    """Stop the work inside, as SIGTERM does, before the job's time is up; then queue it again.

    out: the folder in which the work saves how far it has come.
    """
    late, before, left = threading.Event(), _saved(out), seconds_left()
    timer = threading.Timer((left or 0.0) - min(MARGIN, (left or 0.0) / 2), _stop, [late])
    timer.daemon = True
    if left is not None:
        timer.start()
    try:
        yield
    except (Interrupted, SystemExit):
        if late.is_set():
            _queue_again(out, before != _saved(out))
        raise
    finally:
        timer.cancel()


def seconds_left() -> float | None:
    """Until Slurm ends this job; None outside of a job, if it has no limit, or if it is not
    Snakemake's but a user's own, whose end is the user's business."""
    job = os.environ.get("SLURM_JOB_ID") if REMOTE in os.environ else None
    text = _ask("squeue", "--noheader", "--jobs", job, "--format=%L") if job else None
    found = _LEFT.match((text or "").strip())
    if found is None:
        return None
    days, hours, minutes, seconds = (int(number or 0) for number in found.groups())
    return float(((24 * days + hours) * 60 + minutes) * 60 + seconds)


def _stop(late: threading.Event) -> None:
    late.set()
    os.kill(os.getpid(), signal.SIGTERM)


def _saved(out: Path) -> dict[str, int]:
    """The states saved in a folder, by name, and when."""
    files = (*out.glob(CHECKPOINT), *out.glob(f"*{PARTIAL}"))
    found = {}
    for path in files:
        with contextlib.suppress(FileNotFoundError):  # an attack beside this one has ended
            found[path.name] = path.stat().st_mtime_ns
    return found


def _queue_again(out: Path, has_moved: bool) -> None:
    """Give this job back to the queue and wait for its end; refuse what would never be done."""
    if not has_moved:
        raise UserError(
            f"{out}: the time limit of this job is too short for a single step; raise time_limit"
        )
    if _ask("scontrol", "requeue", os.environ["SLURM_JOB_ID"]) is None:
        return  # a failed attempt then, of which the profile allows some
    print(f"{out}: out of time; the job is queued again and goes on", file=sys.stderr, flush=True)
    time.sleep(_TO_BE_ENDED)


def _ask(*command: str) -> str | None:
    """What one of Slurm's commands prints; None if it is not here or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
