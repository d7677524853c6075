"""What a study will cost, before an hour is spent: hours, energy, disk, the finishing time."""

from __future__ import annotations

import heapq
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tnfdt.run import measured, rates
from tnfdt.run.status_page import duration
from tnfdt.run.workload import STAGES, Job, cost_of, count_text, disk_bytes, jobs_of
from tnfdt.study.machine import Machine, machine_from_dict
from tnfdt.study.study import Study, load_study

STARTUP_SECONDS = 8.0  # of a job's process, where it was not measured
_IMPORTS = "import mlflow, tnfdt.attack.pgd, tnfdt.train.cell"
_CALIBRATION_SECONDS = 10.0
_BANNER_SECONDS = 2.0
_LONG_SECONDS = 2 * 86400  # a run without a GPU that takes longer should be a decision
_EXAMPLE_GPUS = ("rtx3090", "a100")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Every job with the seconds it should compute for, and the device it runs on."""

    jobs: list[Job]
    seconds: list[float]
    startup: float
    slots: int
    speed: rates.Speed
    correction: float = 1.0  # finished jobs took this many times what was predicted

    def of_stage(self, stage: str) -> list[float]:
        return [s for job, s in zip(self.jobs, self.seconds, strict=True) if job.stage == stage]

    def busy(self, todo: Iterable[Job]) -> float:
        """Seconds that devices are busy with the jobs, one after the other."""
        chosen = set(map(id, todo))
        return sum(
            self.startup + self.correction * seconds
            for job, seconds in zip(self.jobs, self.seconds, strict=True)
            if id(job) in chosen
        )

    def elapsed(self, todo: Iterable[Job]) -> float:
        """Seconds until the last job ends, each starting on the first slot that is free."""
        chosen = set(map(id, todo))
        free = [0.0] * self.slots
        for job, seconds in zip(self.jobs, self.seconds, strict=True):
            if id(job) in chosen:
                heapq.heapreplace(free, free[0] + self.startup + self.correction * seconds)
        return max(free)


def make(study: Study, machine: Machine, speed: rates.Speed, *, gpus: int = 1) -> Plan:
    """Predict every job of a study on a device of this speed."""
    jobs, known = jobs_of(study, machine), {}
    for cell in {(c.dataset, c.model, c.method): c for c in study.cells}.values():
        kind = rates.kind_of(study, cell, *cost_of(study, machine, cell))
        known[cell[:3]] = speed.of(kind)
    return Plan(
        jobs=jobs,
        seconds=[known[job.cell[:3]].seconds(job.work) for job in jobs],
        startup=STARTUP_SECONDS,
        slots=_cores() // machine.threads or 1 if speed.device == "cpu" else gpus,
        speed=speed,
    )


def run(
    study: Study, machine: Machine, *, gpus: int, gpu: str | None, calibrate: bool = True
) -> str:
    """The plan as text; `gpu` names a GPU that is not here."""
    plan = make(study, machine, _speed(study, machine, gpu, calibrate), gpus=max(gpus, 1))
    times = measured.read(study, machine, plan.jobs)
    if gpu is None and calibrate:
        correction = measured.correction(plan.jobs, plan.seconds, times)
        plan = replace(plan, startup=_startup_seconds(), correction=correction)
    folder = Path(machine.results_dir, study.name)
    todo = [job for job in plan.jobs if not (folder / job.output).is_file()]
    blocks = [
        _grid(study, plan, todo),
        _table(plan, todo),
        _summary(study, machine, plan, todo),
        measured.compare(plan.jobs, plan.seconds, times),
    ]
    return "\n\n".join(block for block in blocks if block)


def estimate(study: Study, machine: Machine) -> str:
    """The device, the time that is left on it, and, where that is absurd, what to do instead."""
    plan = make(study, machine, rates.measure(study, machine, budget=_BANNER_SECONDS))
    folder = Path(machine.results_dir, study.name)
    todo = [job for job in plan.jobs if not (folder / job.output).is_file()]
    seconds, at_once = plan.elapsed(todo), f"up to {plan.slots} jobs at a time"
    lines = [f"device: {plan.speed.device}, {at_once}; about {duration(seconds)} to go"]
    if plan.speed.device == "cpu" and seconds > _LONG_SECONDS:
        lines += _advice(study, machine, todo)
    return "\n".join(lines)


def _advice(study: Study, machine: Machine, todo: Sequence[Job]) -> list[str]:
    """What to do instead of running the paper's study on a CPU."""
    times = []
    for name in _EXAMPLE_GPUS:
        plan = make(study, machine, rates.of_gpu(name, machine.precision))
        left = {job.output for job in todo}
        times.append(f"{duration(plan.busy(j for j in plan.jobs if j.output in left))} on {name}")
    return [
        f"There is no GPU here. One would need about {' or '.join(times)} (`tnfdt plan`).",
        "In minutes on a CPU: snakemake --cores all --config study=demo",
        "In an hour or two:   snakemake --cores all --config study=mini",
    ]


def _speed(study: Study, machine: Machine, gpu: str | None, calibrate: bool) -> rates.Speed:
    if gpu is not None:
        return rates.of_gpu(gpu, machine.precision)
    if calibrate:
        return rates.measure(study, machine, budget=_CALIBRATION_SECONDS)
    return rates.of_cpu(machine.threads)


def _startup_seconds() -> float:
    """How long a job's process takes to begin: measured by starting one."""
    begin = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", _IMPORTS], capture_output=True)
    return time.perf_counter() - begin if done.returncode == 0 else STARTUP_SECONDS


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _grid(study: Study, plan: Plan, todo: Sequence[Job]) -> str:
    names = ("dataset", "model", "method", "seed")
    sizes = [len({cell[index] for cell in study.cells}) for index in range(4)]
    parts = zip((*sizes, len(study.attack.epsilons)), (*names, "epsilon"), strict=True)
    shown = ", ".join(f"{size} {name}{'s' if size > 1 else ''}" for size, name in parts)
    done = len(plan.jobs) - len(todo)
    return (
        f"study {study.name}: {count_text(study)}\n"
        f"grid: {shown}; {done} of {len(plan.jobs)} jobs are done"
    )


def _table(plan: Plan, todo: Sequence[Job]) -> str:
    """A line per stage: jobs, operations and seconds."""
    lines = [f"{'':8}{'jobs':>7}{'to do':>7}{'TFLOP a job':>15}{'time a job':>13}{'in all':>12}"]
    for stage in STAGES:
        jobs, seconds = [job for job in plan.jobs if job.stage == stage], plan.of_stage(stage)
        if jobs:
            left = sum(job.stage == stage for job in todo)
            each = sum(job.work.total for job in jobs) / len(jobs) / 1e12
            mean, total = duration(sum(seconds) / len(jobs)), duration(sum(seconds))
            lines.append(f"{stage:8}{len(jobs):7}{left:7}{each:15,.3g}{mean:>13}{total:>12}")
    return "\n".join(lines)


def _summary(study: Study, machine: Machine, plan: Plan, todo: Sequence[Job]) -> str:
    busy, elapsed = plan.busy(todo), plan.elapsed(todo)
    end = time.strftime("%a %d %b %H:%M", time.localtime(time.time() + elapsed))
    corrected = f", times {plan.correction:.2f} as measured" if plan.correction != 1 else ""
    rows = {
        "device": f"{plan.speed.device}: {plan.speed.basis}",
        "start-up": f"{plan.startup:.0f} s a job",
        "to do": f"{duration(busy)} of one device{corrected}",
        "finished": f"in {duration(elapsed)} with {plan.slots} jobs at a time; started now, {end}",
        "energy": f"{busy * plan.speed.watts / 3.6e6:.3g} kWh at {plan.speed.watts:.0f} W a job",
        "disk": _size(disk_bytes(study, machine, plan.slots)),
    }
    return "\n".join(f"{key:10}{text}" for key, text in rows.items())


def _size(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


if __name__ == "__main__":
    _machine = machine_from_dict(json.load(sys.stdin))
    print(estimate(load_study(_machine.study), _machine))
