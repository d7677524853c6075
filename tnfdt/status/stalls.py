"""What a killed Snakemake, a lost cluster job or a hanging one leaves behind, and the way out.

Slurm is asked which jobs there are; whether a Snakemake is at work is seen by its lock.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tnfdt.run import slurm
from tnfdt.study.machine import Machine
from tnfdt.study.paths import Cell, StudyPaths
from tnfdt.study.schema import UserError
from tnfdt.study.study import Study

if TYPE_CHECKING:
    from tnfdt.status.state import CellStatus

STALL_SECONDS = 900.0
WAIT_SECONDS = 400.0  # Snakemake asks for its jobs every 180 s at the least, and waits for files
CLUSTER = "cluster"  # in the mark of an unfinished run: its jobs outlive it
_LISTED = 20
_AGAIN = "press Ctrl-C where Snakemake runs and start the same command again"
# Why a job may wait forever, by the end of Slurm's word for it.
_REMEDIES = {
    "TimeLimit": "set time_limit to what `sinfo -o '%P %l'` shows",
    "WallDurationPerJobLimit": "set time_limit to what the account or QOS allows",
    "JobHeldUser": "`scontrol release` the jobs",
    "JobHeldAdmin": "ask the cluster's administrators",
    "BadConstraints": "correct `constraint` in profiles/slurm/config.yaml",
    "InvalidAccount": "correct `slurm_account` in profiles/slurm/config.yaml",
    "PartitionDown": "name another partition in profiles/slurm/config.yaml",
    "PartitionInactive": "name another partition in profiles/slurm/config.yaml",
}


def problems(
    paths: StudyPaths, cells: Sequence[CellStatus], jobs: Sequence[slurm.ClusterJob] | None
) -> Iterator[str]:
    """One line for each thing that will not go on by itself, with the command that fixes it.

    jobs: what Slurm has of the study, None if it does not answer.
    """
    if not is_locked(paths.folder):
        return
    yield from _pending(jobs or [])
    if not is_snakemake_here():
        yield _left_behind(jobs)
        return
    yield from _stalled(cells, jobs or [])
    if jobs == [] and is_cluster_run(paths) and _silence(paths.logs) > WAIT_SECONDS:
        yield f"all jobs are done but Snakemake waits: {_AGAIN}"


def pending(jobs: Sequence[slurm.ClusterJob]) -> list[str]:
    """Why jobs wait in the queue, where that passes by itself."""
    return [
        f"{_jobs(count)} pending: {reason}"
        for reason, count in _reasons(jobs).items()
        if _remedy(reason) is None
    ]


def _pending(jobs: Sequence[slurm.ClusterJob]) -> Iterator[str]:
    for reason, count in _reasons(jobs).items():
        if (remedy := _remedy(reason)) is not None:
            yield f"{_jobs(count)} pending forever: {reason}; {remedy}, then {_AGAIN}"


def _jobs(count: int) -> str:
    return f"{count} job{'s are' if count > 1 else ' is'}"


def _reasons(jobs: Sequence[slurm.ClusterJob]) -> Counter[str]:
    return Counter(job.reason for job in jobs if job.state == "PENDING")


def _remedy(reason: str) -> str | None:
    return next((text for end, text in _REMEDIES.items() if reason.endswith(end)), None)


def _stalled(cells: Sequence[CellStatus], jobs: Sequence[slurm.ClusterJob]) -> Iterator[str]:
    """Cells that Snakemake waits for though nothing has been heard of them for long."""
    for item in cells:
        begun = item.state in ("running", "stopped", "failed")
        if not begun or (item.quiet or 0) < STALL_SECONDS:
            continue
        numbers = ",".join(job.number for job in jobs if _is_of(job, item.cell))
        look = f"look with `squeue --jobs {numbers}`; " if numbers else ""
        silent = f"no sign of life for {(item.quiet or 0) / 60:.0f} min"
        yield f"{item.cell.path}: {silent}; {look}if nothing runs, {_AGAIN}"


def _left_behind(jobs: Sequence[slurm.ClusterJob] | None) -> str:
    """Snakemake exited without releasing its lock, and perhaps its jobs run on."""
    gone = f"a Snakemake was killed (its lock is left, none runs here on {socket.gethostname()})"
    if jobs is None:
        return (
            f"{gone} and squeue does not say if its jobs run on: wait until none does, then "
            "`snakemake --unlock` and start the same command again"
        )
    if not jobs:
        return f"{gone}: start the same command again"
    numbers = sorted((job.number for job in jobs), key=lambda job: (len(job), job))
    shown = " ".join(numbers[:_LISTED]) + (" ..." if len(numbers) > _LISTED else "")
    return (
        f"{gone} and its cluster jobs run on: let them finish or `scancel {shown}`, "
        "then start the same command again"
    )


def is_locked(outputs: Path) -> bool:
    """Whether Snakemake's lock covers files in the folder `outputs`."""
    for path in Path(".snakemake/locks").glob("*.output.lock"):
        with contextlib.suppress(OSError), path.open() as file:
            if any(line.startswith(f"{outputs}/") for line in file):
                return True
    return False


def is_snakemake_here() -> bool:
    """Whether a Snakemake process of this machine works in this folder."""
    import psutil

    here = os.getcwd()
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        # Snakemake starts itself again inside of each job, with --mode.
        named = any(os.path.basename(word) == "snakemake" for word in words[:4])
        if named and "--mode" not in words:
            with contextlib.suppress(psutil.Error):
                if process.cwd() == here:
                    return True
    return False


def is_left_over(study: Study, machine: Machine) -> bool:
    """Whether the lock of a Snakemake that is gone may go too: no cluster job runs on."""
    paths = machine.paths(study.name)
    return submitted_jobs(study, paths) == [] and is_locked(paths.folder)


def mark_unfinished(mark: Path, cluster: bool) -> None:
    """Leave the mark of an unfinished run; the first thing that a run writes to its results."""
    try:
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.write_text(CLUSTER if cluster else "")
    except OSError as error:
        raise UserError(
            f"{mark.parent} cannot be written ({error.strerror}); fix its permissions or set "
            "another results_dir"
        ) from None


def is_cluster_run(paths: StudyPaths) -> bool:
    """Whether the unfinished run of a study submits its jobs to a cluster."""
    mark = paths.unfinished
    return mark.is_file() and mark.read_text() == CLUSTER


def submitted_jobs(study: Study, paths: StudyPaths) -> list[slurm.ClusterJob] | None:
    """What Slurm has of an unfinished run: the jobs of this working folder but for those that
    make a cell of another study; None if it does not answer."""
    if not is_cluster_run(paths):
        return []
    names = {"_".join(map(str, cell)) for cell in (*study.cells, *study.variants)}
    jobs = slurm.jobs()
    return jobs and [
        job for job in jobs if not job.rule.endswith("_cell") or {*_cell_names(job)} & names
    ]


def _is_of(job: slurm.ClusterJob, cell: Cell) -> bool:
    return "_".join(map(str, cell)) in _cell_names(job)


def _cell_names(job: slurm.ClusterJob) -> tuple[str, str]:
    """The cell of a job: its wildcards, with an epsilon behind them if it is an attack."""
    return job.wildcards, job.wildcards.rpartition("_")[0]


def _silence(logs: Path) -> float:
    """Seconds since a job of a study last wrote to its log."""
    newest = 0.0
    for parent, _, names in os.walk(logs):
        for name in names:
            with contextlib.suppress(OSError):
                newest = max(newest, os.stat(os.path.join(parent, name)).st_mtime)
    return time.time() - newest
