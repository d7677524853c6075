"""CPU, memory and GPU of the machine while a cell trains, under MLflow's own names.

MLflow's monitor would run inside the training and report every GPU of the machine; here the
child process samples, and only the GPUs that the training uses.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil

from tnfdt.files.journal import append, read_lines
from tnfdt.tracking.points import SYSTEM


class Sampler:
    """Append a sample to the cell's folder now and then: every five seconds at first, ever
    more rarely later, so that a training of a week has some hundreds of them."""

    def __init__(self, folder: Path, pid: int) -> None:
        self.path, self.pid = folder / SYSTEM, pid
        self.step, self.begin, self.due = len(read_lines(self.path)), 0.0, 0.0
        self.nvml = _nvml()
        psutil.cpu_percent()  # the first call only starts the clock

    def sample(self, now: float) -> None:
        """Append a sample if one is due; `now` in unix seconds."""
        self.begin = self.begin or now
        if now < self.due:
            return
        values = {**_machine(), **_gpus(self.nvml, self.pid)}
        append(self.path, {"time": now, "step": self.step, "system": values})
        self.step += 1
        self.due = now + max(5.0, (now - self.begin) / 50)


def _machine() -> dict[str, float]:
    memory = psutil.virtual_memory()
    return {
        "cpu_utilization_percentage": psutil.cpu_percent(),
        "system_memory_usage_megabytes": round(memory.used / 1e6, 1),
        "system_memory_usage_percentage": memory.percent,
    }


def _nvml() -> ModuleType | None:
    with contextlib.suppress(Exception):
        import pynvml  # type: ignore[import-not-found,import-untyped,unused-ignore]

        pynvml.nvmlInit()
        return pynvml  # type: ignore[no-any-return,unused-ignore]
    return None


def _gpus(nvml: ModuleType | None, pid: int) -> dict[str, float]:
    """The GPUs that process `pid` uses; all, where the driver does not tell who uses them."""
    if nvml is None:
        return {}
    with contextlib.suppress(nvml.NVMLError):
        handles = dict(
            enumerate(map(nvml.nvmlDeviceGetHandleByIndex, range(nvml.nvmlDeviceGetCount())))
        )
        used = {i: gpu for i, gpu in handles.items() if pid in _processes(nvml, gpu)}
        pairs = [_gpu(nvml, i, gpu) for i, gpu in (used or handles).items()]
        return {key: value for pair in pairs for key, value in pair.items()}
    return {}


def _processes(nvml: ModuleType, gpu: Any) -> set[int]:
    return {process.pid for process in nvml.nvmlDeviceGetComputeRunningProcesses(gpu)}


def _gpu(nvml: ModuleType, i: int, gpu: Any) -> dict[str, float]:
    memory = nvml.nvmlDeviceGetMemoryInfo(gpu)
    return {
        f"gpu_{i}_utilization_percentage": nvml.nvmlDeviceGetUtilizationRates(gpu).gpu,
        f"gpu_{i}_memory_usage_megabytes": round(memory.used / 1e6, 1),
        f"gpu_{i}_power_usage_watts": nvml.nvmlDeviceGetPowerUsage(gpu) / 1000,
    }
