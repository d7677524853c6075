"""What a study will cost, before an hour is spent: hours, energy, disk, the finishing time."""

from __future__ import annotations

import contextlib
import heapq
import math
import time
from collections.abc import Iterable

import pandas as pd

from tnfdt import devices
from tnfdt.files.atomic import read_json
from tnfdt.plan import rates
from tnfdt.plan.workload import Job, cost_of, count_text, disk_bytes, jobs_of, reading_lines
from tnfdt.study.machine import Machine
from tnfdt.study.names import duration
from tnfdt.study.schema import UserError
from tnfdt.study.study import Study

_STARTUP_SECONDS = 5.0  # of a job's process, most of it to import torch
_CALIBRATION_SECONDS, _BANNER_SECONDS = 10.0, 2.0
_LONG_SECONDS = 2 * 86400  # a run without a GPU that takes longer should be a decision
_ADVICE = """There is no GPU here; `tnfdt plan --gpu a100` shows what one would need.
In minutes on a CPU: snakemake --cores all --config study=demo
In an hour or two:   snakemake --cores all --config study=mini"""


def make(
    study: Study, machine: Machine, speed: rates.Speed, *, readings: bool | None = None
) -> pd.DataFrame:
    """A row per job on a device of this speed: its stage, its operations, seconds of computing as
    predicted and, where it is done, as its record has them; `readings` as in `jobs_of`.
    """
    jobs = jobs_of(study, machine, readings=readings)
    known = {}
    for key, cell in {job.cell[:3]: job.cell for job in jobs}.items():
        seconds = speed.of(rates.kind_of(study, machine, cell))
        known[key] = cost_of(study, machine, cell).operations, seconds
    rows = [
        (*map(job.images.dot, known[job.cell[:3]]), job.output.is_file(), _taken(job), job.reading)
        for job in jobs
    ]
    columns = ["operations", "seconds", "done", "taken", "reading"]
    frame = pd.DataFrame(rows, columns=columns)
    frame.insert(0, "stage", [job.stage for job in jobs])
    return frame


def _taken(job: Job) -> float:
    if job.output.is_file():
        with contextlib.suppress(UserError, KeyError, TypeError, ValueError):
            return float(read_json(job.output)["metrics"]["duration_seconds"])
    return math.nan


def factors(jobs: pd.DataFrame) -> pd.Series[float]:
    """By stage, how many times longer than predicted the finished jobs took."""
    sums = jobs[jobs["taken"] > 0].groupby("stage")[["taken", "seconds"]].sum()
    return sums["taken"] / sums["seconds"]


def left(jobs: pd.DataFrame) -> list[float]:
    """Seconds of each job to do, its start included, corrected by what is done of its stage."""
    seconds = jobs["stage"].map(factors(jobs)).fillna(1) * jobs["seconds"]
    return list(_STARTUP_SECONDS + seconds[~jobs["done"]])


def elapsed(seconds: Iterable[float], at_once: int) -> float:
    """Seconds until the last job ends, each starting where one is free first."""
    free = [0.0] * at_once
    for busy in seconds:
        heapq.heapreplace(free, free[0] + busy)
    return max(free)


def hours(study: Study, machine: Machine, seeds: int, *, gpu: str | None = None) -> float:
    """Hours of one device for this number of seeds, from nothing; `gpu` as in `run`."""
    jobs = make(study, machine, _speed(study, machine, gpu))
    seconds = float((_STARTUP_SECONDS + jobs["seconds"]).sum())
    return seeds / len(study.seeds) * seconds / 3600


def _speed(study: Study, machine: Machine, gpu: str | None) -> rates.Speed:
    if gpu is not None:
        return rates.of_gpu(gpu, study, machine)
    return rates.measure(study, machine, budget=_CALIBRATION_SECONDS)


def run(study: Study, machine: Machine, *, gpus: int | None, gpu: str | None) -> str:
    """The plan as text for `gpus` devices, or all that are here; `gpu` names one that is not."""
    speed = _speed(study, machine, gpu)
    here = devices.jobs_at_once(machine.device, 1, machine.threads)
    at_once = here if speed.device == "cpu" else gpus or (1 if gpu else here)
    every = make(study, machine, speed, readings=True)
    jobs = every if study.multiverse.include else every[every["reading"] == ""]
    todo, size = left(jobs), disk_bytes(study, machine, at_once)
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
    head = [f"study {study.name}: {count_text(study)}", *reading_lines(study, _added(every))]
    return "\n".join([*head, "", _table(jobs), "", *lines])


def _added(jobs: pd.DataFrame) -> dict[str, str]:
    """The time that each other reading adds, done or not, the start of its jobs included."""
    seconds = (_STARTUP_SECONDS + jobs["seconds"]).groupby(jobs["reading"]).sum()
    return {str(reading): duration(time) for reading, time in seconds.items()}


def _table(jobs: pd.DataFrame) -> str:
    """A line per stage: jobs, operations, seconds, and how finished ones compare with them."""
    stages = jobs.groupby("stage", sort=False)
    columns = {
        "jobs": stages.size(),
        "to do": stages.size() - stages["done"].sum(),
        "TFLOP a job": (stages["operations"].mean() / 1e12).map("{:,.3g}".format),
        "time a job": stages["seconds"].mean().map(duration),
        "in all": stages["seconds"].sum().map(duration),
        "took": factors(jobs).map("{:.2f} x that".format),
    }
    table = pd.DataFrame(columns).loc[jobs["stage"].unique()]
    return table.rename_axis(None).to_string(na_rep="")


def estimate(study: Study, machine: Machine, at_once: int) -> str:
    """The device, the time that is left on it, and, where that is absurd, what to do instead."""
    speed = rates.measure(study, machine, budget=_BANNER_SECONDS, again=False)
    sharing = 1 if speed.device == "cpu" else machine.gpu_slots  # jobs of one GPU take turns
    seconds = elapsed(left(make(study, machine, speed)), max(at_once // sharing, 1))
    jobs = f"up to {at_once} jobs at a time"
    text = f"device: {speed.device}, {jobs}; about {duration(seconds)} to go"
    absurd = speed.device == "cpu" and seconds > _LONG_SECONDS
    return f"{text}\n{_ADVICE}" if absurd else text
