"""What a killed Snakemake, a lost cluster job or a hanging one leaves behind, and the way out.

Everything is read from Snakemake's own folder: the locks it holds on outputs, and the marks of
unfinished outputs, which hold the number of the cluster job that makes them.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import json
import os
import socket
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tnfdt.study.machine import Machine
from tnfdt.study.paths import Cell
from tnfdt.study.study import Study

if TYPE_CHECKING:
    from tnfdt.run.status import CellStatus

STALL_SECONDS = 900.0
CLUSTER = "cluster"  # in the mark of an unfinished run: its jobs outlive it
_LISTED = 20
Jobs = dict[str, Cell | None]


def problems(study: Study, machine: Machine, cells: Sequence[CellStatus]) -> Iterator[str]:
    """One line for each thing that will not go on by itself, with the command that mends it."""
    outputs = f"{Path(machine.results_dir, study.name)}{os.sep}"
    if not is_locked(outputs):
        return
    begun = [item for item in cells if item.state in ("running", "stopped", "failed")]
    jobs = submitted_jobs(outputs, [item.cell for item in begun])
    if is_snakemake_here():
        yield from _stalled(begun, jobs)
    else:
        yield _left_behind(jobs)


def _stalled(begun: Sequence[CellStatus], jobs: Jobs) -> Iterator[str]:
    """Cells that Snakemake waits for though nothing has been heard of them for long."""
    for item in begun:
        if (item.quiet or 0) < STALL_SECONDS:
            continue
        numbers = " ".join(job for job, cell in jobs.items() if cell == item.cell)
        look = f"look with `squeue --jobs {numbers.replace(' ', ',')}`; " if numbers else ""
        yield (
            f"{item.cell.path}: no sign of life for {(item.quiet or 0) / 60:.0f} min; {look}if "
            "nothing runs, press Ctrl-C where Snakemake runs and start the same command again"
        )


def _left_behind(jobs: Jobs) -> str:
    """Snakemake has gone without saying goodbye: its lock is there, and perhaps its jobs."""
    gone = f"a Snakemake was killed (its lock is left, none runs here on {socket.gethostname()})"
    numbers = sorted(jobs, key=lambda job: (len(job), job))
    if numbers:
        shown = " ".join(numbers[:_LISTED]) + (" ..." if len(numbers) > _LISTED else "")
        return (
            f"{gone} and its cluster jobs may run on: let them finish or `scancel {shown}`, "
            f"then `snakemake --unlock` and start the same command again"
        )
    return f"{gone}: start the same command again"


def is_locked(outputs: str, folder: Path = Path(".snakemake")) -> bool:
    """Whether Snakemake's lock covers files under `outputs`."""
    for path in (folder / "locks").glob("*.output.lock"):
        with contextlib.suppress(OSError), path.open() as file:
            if any(line.startswith(outputs) for line in file):
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
    results = f"{machine.results_dir}/{study.name}"  # as the rules write it
    mark = Path(results, ".unfinished")
    if mark.is_file() and mark.read_text() == CLUSTER:
        return False
    outputs = f"{results}/"
    return is_locked(outputs) and not submitted_jobs(outputs, study.cells)


def submitted_jobs(outputs: str, cells: Iterable[Cell], folder: Path = Path(".snakemake")) -> Jobs:
    """Cluster jobs that make unfinished files under `outputs`, with their cell where it is known.

    A job in the queue has its number in the mark of its output. When it starts it takes that
    away, but from then on there is its log, named after rule, wildcards and number.
    """
    found: Jobs = dict.fromkeys(_queued_jobs(outputs, folder))
    names, begin = {"_".join(map(str, cell)): cell for cell in cells}, _lock_time(folder)
    for place in (folder / "slurm_logs").glob("rule_*_cell/*"):
        cell = names.get(place.name) or names.get(place.name.rpartition("_")[0])  # with epsilon
        logs = [path for path in place.glob("*.log") if path.stat().st_mtime >= begin]
        if cell is not None and logs:  # an earlier attempt has left its log, the last one counts
            found[max((path.stem for path in logs), key=lambda job: (len(job), job))] = cell
    return found


def _queued_jobs(outputs: str, folder: Path) -> Iterator[str]:
    root = folder / "incomplete"
    for parent, _, names in os.walk(root):
        for name in names:
            path = Path(parent, name)
            target = _decode("".join(path.relative_to(root).parts))
            with contextlib.suppress(OSError, ValueError, AttributeError):
                job = json.loads(path.read_text()).get("external_jobid")
                if job and target.startswith(outputs):
                    yield str(job)


def _lock_time(folder: Path) -> float:
    """When the Snakemake that has the lock began; logs from before are of other runs."""
    times = [path.stat().st_mtime for path in (folder / "locks").glob("*.output.lock")]
    return min(times, default=0.0)


def _decode(name: str) -> str:
    """The path that a mark is of: base64, cut into parts that begin with @ where it is long."""
    try:
        return base64.urlsafe_b64decode(name.replace("@", "")).decode()
    except (binascii.Error, ValueError):
        return ""
