"""What a study will cost, before an hour is spent: hours, energy, disk, the finishing time."""

from __future__ import annotations

import contextlib
import heapq
import json
import math
import sys
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pandas as pd

from tnfdt import devices
from tnfdt.evidence.results import Results
from tnfdt.files.atomic import read_json, write_json
from tnfdt.run import rates, tables
from tnfdt.run.arguments import refuse
from tnfdt.run.status_page import duration
from tnfdt.run.workload import Job, cost_of, count_text, disk_bytes, jobs_of, kinds_of
from tnfdt.study.looks import as_json, row_of
from tnfdt.study.machine import Machine, machine_from_dict
from tnfdt.study.outputs import CLAIMS, PUBLISHED
from tnfdt.study.schema import UserError
from tnfdt.study.study import Study, load_study
from tnfdt.verdicts.claims import load_claims
from tnfdt.verdicts.looks import look_name, undecided_rows
from tnfdt.verdicts.power import SEEDS, study_power
from tnfdt.verdicts.published import load_published, published_values

_STARTUP_SECONDS = 5.0  # of a job's process, most of it to import torch
_CALIBRATION_SECONDS, _BANNER_SECONDS = 10.0, 2.0
_IMAGES = 10_000  # test images of the paper's datasets; SVHN has more
_LONG_SECONDS = 2 * 86400  # a run without a GPU that takes longer should be a decision
_ADVICE = """There is no GPU here; `tnfdt plan --gpu a100` tells what one would need.
In minutes on a CPU: snakemake --cores all --config study=demo
In an hour or two:   snakemake --cores all --config study=mini"""


def make(study: Study, machine: Machine, speed: rates.Speed) -> pd.DataFrame:
    """A row per job on a device of this speed: its stage, its operations, seconds of computing as
    predicted and, where it is done, as its record has them.
    """
    known = {}
    for key, cell in kinds_of(study).items():
        seconds = speed.of(rates.kind_of(study, machine, cell))
        known[key] = cost_of(study, machine, cell).operations, seconds
    rows = [
        (job.stage, *map(job.images.dot, known[job.cell[:3]]), job.output.is_file(), _taken(job))
        for job in jobs_of(study, machine)
    ]
    return pd.DataFrame(rows, columns=["stage", "operations", "seconds", "done", "taken"])


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
    jobs = make(study, machine, speed)
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
    return "\n".join([f"study {study.name}: {count_text(study)}", "", _table(jobs), "", *lines])


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


def next_look(study: Study, machine: Machine, gpu: str | None) -> str:
    """What this look has decided, what the next one would cost; and go on to it."""
    looks = study.looks
    if not looks.planned:
        raise UserError(f"study {study.name} declares no looks; see `seeds` in config/README.md")
    material = tables.load(study, Path(machine.results_dir), machine)
    _check_complete(study, material.results)
    _, verdicts = tables.judge(material)
    rows = undecided_rows(verdicts) & {row_of(cell) for cell in study.cells}
    lines = [f"{look_name(looks.planned, looks.seeds)}:"]
    lines += [f"  {verdict.verdict:16}{verdict.claim.id}" for verdict in verdicts]
    if not rows or looks.look == len(looks.planned):
        why = "this was the last look" if rows else "no row can change a verdict any more"
        return "\n".join([*lines, f"{why}: nothing to add"])
    more = looks.planned[looks.look]
    following = replace(looks, look=looks.look + 1, rows=looks.rows | dict.fromkeys(rows, more))
    write_json(material.results.paths.looks, as_json(following))
    cells = sum(more - looks.row_seeds(row) for row in rows)
    cost = cells / len(study.cells) * hours(study, machine, len(study.seeds), gpu=gpu)
    return "\n".join([
        *lines,
        f"rows that can still change a verdict: {', '.join(sorted(rows))}",
        f"{look_name(looks.planned, more)}: {cells} more trainings, about {cost:.3g} hours of one "
        "device; snakemake trains them now",
    ])  # fmt: skip


def _check_complete(study: Study, results: Results) -> None:
    if not results.is_complete:
        raise UserError(
            f"study {study.name} has not all trainings and attacks of this look yet; "
            "run snakemake first"
        )


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


if __name__ == "__main__":
    _machine = machine_from_dict(json.load(sys.stdin))
    try:
        devices.check(_machine.device)
    except UserError as _error:  # such as a driver that is too old for torch
        sys.exit(refuse(_error))
    print(estimate(load_study(_machine.study, _machine.results_dir), _machine, int(sys.argv[1])))
