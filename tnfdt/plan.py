"""What a study will cost, before an hour is spent: hours, energy, disk, the finishing time."""

from __future__ import annotations

import contextlib
import heapq
import json
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from tnfdt import devices
from tnfdt.files.atomic import read_json
from tnfdt.run import rates
from tnfdt.run.arguments import refuse
from tnfdt.run.status_page import duration
from tnfdt.run.workload import STAGES, Job, cost_of, count_text, disk_bytes, jobs_of, kinds_of
from tnfdt.study.machine import Machine, machine_from_dict
from tnfdt.study.outputs import CLAIMS, PUBLISHED
from tnfdt.study.schema import UserError
from tnfdt.study.study import Study, load_study
from tnfdt.verdicts.claims import load_claims
from tnfdt.verdicts.power import SEEDS, study_power
from tnfdt.verdicts.published import load_published, published_values

_STARTUP_SECONDS = 5.0  # of a job's process, most of it to import torch
_CALIBRATION_SECONDS, _BANNER_SECONDS = 10.0, 2.0
_IMAGES = 10_000  # test images of the paper's datasets; SVHN has more
_LONG_SECONDS = 2 * 86400  # a run without a GPU that takes longer should be a decision
_ADVICE = """There is no GPU here; `tnfdt plan --gpu a100` tells what one would need.
In minutes on a CPU: snakemake --cores all --config study=demo
In an hour or two:   snakemake --cores all --config study=mini"""


class Planned(NamedTuple):
    """A job with the operations and seconds of computing that it should take."""

    job: Job
    operations: float
    seconds: float

    @property
    def is_done(self) -> bool:
        return self.job.output.is_file()

    @property
    def taken(self) -> float:
        """Seconds that it computed for, by its record; 0 before it is done."""
        if self.is_done:
            with contextlib.suppress(UserError, KeyError, TypeError, ValueError):
                return float(read_json(self.job.output)["metrics"]["duration_seconds"])
        return 0.0


def make(study: Study, machine: Machine, speed: rates.Speed) -> list[Planned]:
    """Every job of a study on a device of this speed."""
    known = {}
    for key, cell in kinds_of(study).items():
        seconds = speed.of(rates.kind_of(study, machine, cell))
        known[key] = cost_of(study, machine, cell).operations, seconds
    jobs = jobs_of(study, machine)
    return [Planned(job, *map(job.images.dot, known[job.cell[:3]])) for job in jobs]


def factors(planned: Iterable[Planned]) -> dict[str, float]:
    """By stage, how many times longer than predicted the finished jobs took."""
    sums = {stage: [0.0, 0.0] for stage in STAGES}
    for item in planned:
        if taken := item.taken:
            sums[item.job.stage][0] += taken
            sums[item.job.stage][1] += item.seconds
    return {stage: taken / expected for stage, (taken, expected) in sums.items() if expected}


def left(planned: list[Planned]) -> list[float]:
    """Seconds of each job to do, its start included, corrected by what is done."""
    known, todo = factors(planned), (item for item in planned if not item.is_done)
    return [_STARTUP_SECONDS + known.get(item.job.stage, 1) * item.seconds for item in todo]


def elapsed(seconds: Iterable[float], at_once: int) -> float:
    """Seconds until the last job ends, each starting where one is free first."""
    free = [0.0] * at_once
    for busy in seconds:
        heapq.heapreplace(free, free[0] + busy)
    return max(free)


def hours(study: Study, machine: Machine, seeds: int, *, gpu: str | None = None) -> float:
    """Hours of one device for this number of seeds, from nothing; `gpu` as in `run`."""
    planned = make(study, machine, _speed(study, machine, gpu))
    per_seed = sum(_STARTUP_SECONDS + item.seconds for item in planned) / len(study.seeds)
    return seeds * per_seed / 3600


def _speed(study: Study, machine: Machine, gpu: str | None) -> rates.Speed:
    if gpu is not None:
        return rates.of_gpu(gpu, study, machine)
    return rates.measure(study, machine, budget=_CALIBRATION_SECONDS)


def run(study: Study, machine: Machine, *, gpus: int | None, gpu: str | None) -> str:
    """The plan as text for `gpus` devices, or all that are here; `gpu` names one that is not."""
    speed = _speed(study, machine, gpu)
    here = devices.jobs_at_once(machine.device, 1, machine.threads)
    at_once = here if speed.device == "cpu" else gpus or (1 if gpu else here)
    planned = make(study, machine, speed)
    todo, size = left(planned), disk_bytes(study, machine, at_once)
    end = elapsed(todo, at_once)
    clock = time.strftime("%a %d %b %H:%M", time.localtime(time.time() + end))
    rows = {
        "device": f"{speed.device}: {speed.basis}",
        "to do": f"{duration(sum(todo))} of one device, {_STARTUP_SECONDS:.0f} s to start a job",
        "finished": f"in {duration(end)} with {at_once} jobs at a time; started now, {clock}",
        "energy": f"{sum(todo) * speed.watts / 3.6e6:.3g} kWh at {speed.watts:.0f} W a job",
        "disk": f"{size / 1e6:,.0f} MB",
    }
    lines = [f"{key:10}{text}" for key, text in rows.items()]
    return "\n".join([f"study {study.name}: {count_text(study)}", "", *_table(planned), "", *lines])


def power(study: Study, machine: Machine, gpu: str | None, figure: Path | None) -> str:
    """Claim by claim, the chance to reproduce it if the paper is right, and what it costs."""
    published = published_values(load_published(PUBLISHED))
    images = study.attack.limit or _IMAGES
    powers = study_power(load_claims(CLAIMS), published, images)
    costs = {seeds: hours(study, machine, seeds, gpu=gpu) for seeds in SEEDS}
    if figure is not None:
        from tnfdt.figures.power import power_over_hours
        from tnfdt.figures.style import save

        save(power_over_hours(powers, costs), figure.with_suffix(""))
    head = f"P(reproduced) at the paper's effects and SDs, {images:,} test images; in brackets the"
    lines = [f"{head} smallest effect seen with 80 % power, in points", ""]
    lines.append(f"{'seeds':22}" + "".join(f"{seeds:>15}" for seeds in SEEDS))
    lines.append(f"{'hours of one device':22}" + "".join(f"{costs[n]:>15,.3g}" for n in SEEDS))
    for claim in dict.fromkeys(power.claim for power in powers):
        found = [power for power in powers if power.claim == claim]
        cells = (f"{100 * p.reproduced:.0f} % ({p.smallest:.2f})" for p in found)
        lines.append(f"{claim:22}" + "".join(f"{cell:>15}" for cell in cells))
    return "\n".join(lines)


def _table(planned: list[Planned]) -> list[str]:
    """A line per stage: jobs, operations, seconds, and how finished ones compare with them."""
    names = ("jobs", "to do", "TFLOP a job", "time a job", "in all", "took")
    lines, known = [f"{'':8}" + "".join(f"{name:>13}" for name in names)], factors(planned)
    for stage in STAGES:
        if items := [item for item in planned if item.job.stage == stage]:
            operations = sum(item.operations for item in items) / len(items) / 1e12
            total, todo = sum(item.seconds for item in items), sum(not i.is_done for i in items)
            times = duration(total / len(items)), duration(total)
            took = f"{known[stage]:.2f} x that" if stage in known else ""
            values = (len(items), todo, f"{operations:,.3g}", *times, took)
            lines.append(f"{stage:8}" + "".join(f"{value:>13}" for value in values))
    return lines


def estimate(study: Study, machine: Machine, at_once: int) -> str:
    """The device, the time that is left on it, and, where that is absurd, what to do instead."""
    speed = rates.measure(study, machine, budget=_BANNER_SECONDS, again=False)
    sharing = 1 if speed.device == "cpu" else machine.gpu_slots  # jobs of one GPU take turns
    seconds = elapsed(left(make(study, machine, speed)), max(at_once // sharing, 1))
    jobs = f"up to {at_once} jobs at a time"
    text = f"device: {speed.device}, {jobs}; about {duration(seconds)} to go"
    absurd = speed.device == "cpu" and seconds > _LONG_SECONDS
    return f"{text}\n{_ADVICE}" if absurd else text


if __name__ == "__main__":
    _machine = machine_from_dict(json.load(sys.stdin))
    try:
        devices.check(_machine.device)
    except UserError as _error:  # such as a driver that is too old for torch
        sys.exit(refuse(_error))
    print(estimate(load_study(_machine.study), _machine, int(sys.argv[1])))
