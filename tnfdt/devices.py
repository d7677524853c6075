"""Devices: which one a job runs on, in which arithmetic, and how jobs share GPUs.

Snakemake's `--resources gpu=4` starts four jobs but gives none of them a device. A job
therefore leases a slot of a device by a file lock, which the system releases when the
process ends, however it ends.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import socket
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tnfdt.study.schema import UserError

if TYPE_CHECKING:
    import torch

_CLUSTER = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "JOB_ID")
_POLL_SECONDS = 0.5


def has_cuda_device() -> bool:
    """Whether the NVIDIA driver shows a GPU, found without importing torch."""
    gpus = Path("/proc/driver/nvidia/gpus")
    return gpus.is_dir() and any(gpus.iterdir()) and os.environ.get("CUDA_VISIBLE_DEVICES") != ""


def wants_gpu(device: str) -> bool:
    """Whether a job with this `device` setting takes a GPU of this machine."""
    return device.startswith("cuda") or (device == "auto" and has_cuda_device())


@contextlib.contextmanager
def acquire(setting: str, slots: int) -> Iterator[torch.device]:
    """The device for `setting` (auto, cpu, mps, cuda, cuda:1), leased while the block runs."""
    import torch

    name = _resolve(setting)
    if name != "cuda":
        yield torch.device(name)
        return
    visible = _visible_ids(torch.cuda.device_count())
    if any(os.environ.get(key) for key in _CLUSTER):
        yield torch.device("cuda:0")  # the cluster has chosen: its first visible device is ours
        return
    with lease(visible, slots) as gpu:
        yield torch.device(f"cuda:{visible.index(gpu)}")


def check(setting: str) -> None:
    """Raise unless this machine has the device."""
    _resolve(setting)


def _resolve(setting: str) -> str:
    import torch

    if setting == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if setting.startswith("cuda"):
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        index = int(setting.partition(":")[2] or 0)
        if index >= count:
            raise UserError(
                f"device {setting}: {count} CUDA devices found; set device: cpu or auto"
            )
    if setting == "mps" and not torch.backends.mps.is_available():
        raise UserError("device mps: not available here; set device: cpu or auto")
    return setting


def _visible_ids(count: int) -> list[str]:
    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    return listed.split(",")[:count] if listed else [str(index) for index in range(count)]


@contextlib.contextmanager
def lease(gpus: Sequence[str], slots: int, folder: Path | None = None) -> Iterator[str]:
    """Hold one of `slots` slots of one of `gpus`; waits until one is free.

    Slot 0 of every device is tried before slot 1 of any, so that jobs spread out.
    """
    from filelock import FileLock, Timeout

    folder = folder or Path(tempfile.gettempdir(), f"tnfdt-gpu-{getpass.getuser()}")
    folder.mkdir(parents=True, exist_ok=True)
    host, told = socket.gethostname(), False
    while True:
        for slot in range(slots):
            for gpu in gpus:
                lock = FileLock(folder / f"{host}-{gpu}-{slot}.lock")
                with contextlib.suppress(Timeout), lock.acquire(timeout=0):
                    yield gpu
                    return
        if not told:
            print(f"waiting for one of {len(gpus) * slots} GPU slots", file=sys.stderr, flush=True)
            told = True
        time.sleep(_POLL_SECONDS)


def set_arithmetic(precision: str, threads: int) -> None:
    """Deterministic algorithms, a fixed number of threads, and the precision asked for."""
    import torch

    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(True, warn_only=True)
    # It would fill every new tensor before it is written: a kernel each, and no other result.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    torch.backends.cudnn.benchmark = False
    set_precision(precision)


def set_precision(precision: str) -> None:
    """What float32 means on a GPU from here on: tf32, or IEEE with any other precision."""
    import torch

    fp32 = "tf32" if precision == "tf32" else "ieee"
    torch.backends.cuda.matmul.fp32_precision = fp32
    torch.backends.cudnn.conv.fp32_precision = fp32  # type: ignore[attr-defined]


def autocast(device: torch.device, precision: str) -> Any:
    """The context of the forward pass: bf16 autocast, or nothing."""
    import torch

    if precision != "bf16":
        return contextlib.nullcontext()
    return torch.autocast(device.type, dtype=torch.bfloat16)


def memory_format(device: torch.device, precision: str) -> torch.memory_format:
    """channels_last where it is faster: on the CPU, and on the tensor cores of a GPU."""
    import torch

    if device.type == "cpu" or (device.type == "cuda" and precision != "fp32"):
        return torch.channels_last
    return torch.contiguous_format


def describe(device: torch.device) -> str:
    """The device by name, for records."""
    import torch

    return torch.cuda.get_device_name(device) if device.type == "cuda" else str(device)


def peak_memory(device: torch.device) -> int:
    """Peak memory of this process in bytes: of the GPU if it has one, else of the process."""
    import resource

    import torch

    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def energy_counter(device: torch.device) -> float | None:
    """Joules counted by the hardware so far, or None where it does not tell.

    A GPU counts for all jobs on it; the CPU's counter is that of the whole package.
    """
    if device.type == "cuda":
        with contextlib.suppress(Exception):
            import pynvml  # type: ignore[import-untyped]

            pynvml.nvmlInit()
            handle = pynvml.nvmlDeviceGetHandleByIndex(device.index or 0)
            return float(pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)) / 1e3
    if device.type == "cpu":
        with contextlib.suppress(OSError, ValueError):
            return int(Path("/sys/class/powercap/intel-rapl:0/energy_uj").read_text()) / 1e6
    return None
