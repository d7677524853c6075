"""What finished jobs really took, from their records, beside what was predicted."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

from tnfdt.files.atomic import read_json
from tnfdt.run.status_page import duration
from tnfdt.run.workload import Job
from tnfdt.study.machine import Machine
from tnfdt.study.schema import UserError
from tnfdt.study.study import Study

_ROWS = 40  # more than these, and methods are put together


def read(study: Study, machine: Machine, jobs: Sequence[Job]) -> list[float | None]:
    """Seconds that each job computed for, None where it has not been done."""
    folder = Path(machine.results_dir, study.name)
    return [_seconds(folder / job.output) for job in jobs]


def _seconds(path: Path) -> float | None:
    if path.is_file():
        with contextlib.suppress(UserError, KeyError, TypeError, ValueError):
            return float(read_json(path)["metrics"]["duration_seconds"])
    return None


def correction(
    jobs: Sequence[Job], predicted: Sequence[float], times: Sequence[float | None]
) -> float:
    """Measured over predicted seconds of what is done; 1 if nothing is."""
    pairs = [(p, t) for p, t in zip(predicted, times, strict=True) if t is not None]
    total = sum(p for p, _ in pairs)
    return sum(t for _, t in pairs) / total if total else 1.0


def compare(jobs: Sequence[Job], predicted: Sequence[float], times: Sequence[float | None]) -> str:
    """A table of predicted against measured, one row per stage, dataset, model and method."""
    rows: dict[str, list[tuple[float, float]]] = {}
    depth = 3 if len({(job.stage, job.cell[:3]) for job in jobs}) <= _ROWS else 2
    for job, guess, taken in zip(jobs, predicted, times, strict=True):
        if taken is not None:
            name = f"{job.stage:7} {'/'.join(job.cell[:depth])}"  # type: ignore[arg-type]
            rows.setdefault(name, []).append((guess, taken))
    if not rows:
        return ""
    rows["all"] = [pair for pairs in rows.values() for pair in pairs]
    width = max(map(len, rows))
    head = (
        f"{'seconds of computing':{width}}{'jobs':>7}{'predicted':>12}{'measured':>12}{'ratio':>8}"
    )
    return "\n".join([head, *(_row(name, pairs, width) for name, pairs in rows.items())])


def _row(name: str, pairs: Sequence[tuple[float, float]], width: int) -> str:
    guess, taken = (sum(pair[index] for pair in pairs) for index in (0, 1))
    ratio = f"{taken / guess:8.2f}" if guess else f"{'':8}"
    return f"{name:{width}}{len(pairs):7}{duration(guess):>12}{duration(taken):>12}{ratio}"
