"""Devices: which one a job runs on, in which arithmetic, and how jobs share GPUs.

Snakemake's `--resources gpu=4` starts four jobs but gives none of them a device. A job
therefore leases a slot of a device by a file lock, which the system releases when the
process ends, however it ends. A GPU is known by its UUID: numbers mean another device in each
process that sees only some of them.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import socket
import stat
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tnfdt.study.schema import UserError

if TYPE_CHECKING:
    import torch

_PROC = Path("/proc/driver/nvidia/gpus")
_POLL_SECONDS = 0.5


def gpu_count() -> int:
    """GPUs that this process may use, found without importing torch."""
    there, listed = _gpus_of_driver(), os.environ.get("CUDA_VISIBLE_DEVICES")
    if listed is None or not there:
        return there
    # As CUDA reads it: what follows a name that is none does not count, -1 is a usual one.
    stripped = (name.strip() for name in listed.split(","))
    names = list(itertools.takewhile(lambda name: _is_gpu(name, there), stripped))
    if any(name.startswith("MIG-") for name in names):
        return 1  # CUDA shows a process one part of a GPU
    return len(names) if len(set(names)) == len(names) else 0


def _is_gpu(name: str, there: int) -> bool:
    return name.startswith(("GPU-", "MIG-")) or (name.isdecimal() and int(name) < there)


@cache
def _gpus_of_driver() -> int:
    with contextlib.suppress(OSError):
        return len(list(_PROC.iterdir()))
    with contextlib.suppress(Exception):  # Windows' Linux has no such folder
        return int(nvml().nvmlDeviceGetCount())
    return 0


def nvml() -> Any:
    """NVIDIA's management library, ready for questions."""
    import pynvml  # type: ignore[import-untyped]

    pynvml.nvmlInit()
    return pynvml


def wants_gpu(device: str) -> bool:
    """Whether a job with this `device` setting takes a GPU of this machine."""
    return device.startswith("cuda") or (device == "auto" and gpu_count() > 0)


def jobs_at_once(device: str, slots: int, threads: int) -> int:
    """How many jobs with these settings this machine takes: by its GPUs, else by its cores."""
    if wants_gpu(device):
        return slots * (1 if ":" in device else max(gpu_count(), 1))
    usable = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else ()
    return max((len(usable) or os.cpu_count() or 1) // threads, 1)


def cuda_problem() -> str | None:
    """Why torch cannot use the GPUs that the driver shows, with what to do; None if it can."""
    import torch

    if torch.cuda.is_available() or gpu_count() == 0:
        return None
    try:
        found = nvml()
        driver, newest = found.nvmlSystemGetDriverVersion(), found.nvmlSystemGetCudaDriverVersion()
    except Exception as error:
        if "NotFound" in type(error).__name__:  # a container that was not given the GPUs
            return None
        return f"the NVIDIA driver does not answer ({error}); restart the machine"
    if torch.version.cuda is None:
        return f"torch {torch.__version__} is built without CUDA; make venv TORCH='torch==…'"
    return (
        f"torch {torch.__version__} is built for CUDA {torch.version.cuda}, driver {driver} knows "
        f"CUDA up to {newest // 1000}.{newest % 1000 // 10}; update the driver, or install another "
        "build: make venv TORCH='torch==… torchvision==…'"
    )


@contextlib.contextmanager
def acquire(setting: str, slots: int) -> Iterator[torch.device]:
    """The device for `setting` (auto, cpu, mps, cuda, cuda:1), leased while the block runs."""
    import torch

    name = resolve(setting)
    if not name.startswith("cuda"):
        yield torch.device(name)
        return
    visible = [uuid_of(torch.device("cuda", i)) for i in range(torch.cuda.device_count())]
    wanted = visible if name == "cuda" else [visible[int(name.partition(":")[2])]]
    with lease(wanted, slots) as gpu:
        device = torch.device("cuda", visible.index(gpu))
        torch.cuda.set_device(device)  # else pinned memory and the like touch the first one
        yield device


def check(setting: str) -> None:
    """Raise unless this machine has the device."""
    resolve(setting)


def resolve(setting: str) -> str:
    """The device as torch names it, cuda being any GPU; raises unless this machine has it."""
    import torch

    if setting == "auto":
        if torch.cuda.is_available():
            return "cuda"
        if problem := cuda_problem():  # a week on the CPU should be a decision
            raise UserError(f"device auto: {problem}; or set device: cpu")
        return "cpu"
    if setting.startswith("cuda"):
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        index = int(setting.partition(":")[2] or 0)
        if index >= count:
            why = cuda_problem() or f"{count} CUDA devices found"
            raise UserError(f"device {setting}: {why}; set device: cpu or auto")
    if setting == "mps" and not torch.backends.mps.is_available():
        raise UserError("device mps: not available here; set device: cpu or auto")
    return setting


def uuid_of(device: torch.device) -> str:
    """The UUID of a GPU, as nvidia-smi writes it."""
    import torch

    listed = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    if listed.startswith("MIG-"):  # the properties may be those of the whole GPU
        return listed.split(",")[device.index or 0]
    return f"GPU-{torch.cuda.get_device_properties(device).uuid}"


@contextlib.contextmanager
def lease(gpus: Sequence[str], slots: int, folder: Path | None = None) -> Iterator[str]:
    """Hold one of `slots` slots of one of `gpus`; waits until one is free.

    Slot 0 of every device is tried before slot 1 of any, so that jobs spread out.
    """
    from filelock import FileLock, Timeout

    folder = _own(folder or Path(tempfile.gettempdir(), f"tnfdt-gpu-{os.getuid()}"))
    host, said = socket.gethostname(), False
    while True:
        for slot in range(slots):
            for gpu in gpus:
                name = f"{host}-{gpu}-{slot}.lock".replace("/", "_")
                with contextlib.suppress(Timeout), FileLock(folder / name).acquire(timeout=0):
                    yield gpu
                    return
        if not said:
            print(f"waiting for one of {len(gpus) * slots} GPU slots", file=sys.stderr, flush=True)
            said = True
        time.sleep(_POLL_SECONDS)


def _own(folder: Path) -> Path:
    """The folder, made for this user alone: in a shared /tmp others can plant a link there."""
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    private = stat.S_ISDIR(found.st_mode) and not found.st_mode & 0o077
    if not private or found.st_uid != os.getuid():
        raise UserError(
            f"{folder}: GPU leases need a folder of your own with mode 0700, and no link; "
            "remove it, or set TMPDIR to another folder"
        )
    return folder


def set_arithmetic(precision: str, threads: int) -> None:
    """Deterministic algorithms, a fixed number of threads, and the precision asked for."""
    import torch

    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.set_num_threads(threads)
    # As use_deterministic_algorithms(True, warn_only=True), which also imports Inductor.
    torch.set_deterministic_debug_mode("warn")
    # It would fill every new tensor before it is written: a kernel each, and no other result.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    torch.backends.cudnn.benchmark = False
    set_precision(precision)


def set_precision(precision: str) -> None:
    """What float32 means on a GPU from here on: tf32, or IEEE with any other precision."""
    import torch

    fp32 = "tf32" if precision == "tf32" else "ieee"
    if not hasattr(torch.backends.cudnn, "conv"):  # before torch 2.9, for an older driver
        torch.backends.cuda.matmul.allow_tf32 = fp32 == "tf32"
        torch.backends.cudnn.allow_tf32 = fp32 == "tf32"
        return
    torch.backends.cuda.matmul.fp32_precision = fp32
    torch.backends.cudnn.conv.fp32_precision = fp32


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


@contextlib.contextmanager
def memory_errors(advice: str) -> Iterator[None]:
    """A GPU without enough memory is one line, `advice`, whichever library finds it out."""
    try:
        yield
    except RuntimeError as error:  # of torch's allocator, the driver, Triton, cuBLAS and cuDNN
        if not re.search(r"out of memory|_ALLOC_FAILED", str(error)):
            raise
        raise UserError(advice) from None


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
    """Joules counted by the hardware so far, or None where it does not say.

    A GPU counts for all jobs on it; the CPU's counter is that of the whole package.
    """
    if device.type == "cuda":
        with contextlib.suppress(Exception):
            found = nvml()
            handle = found.nvmlDeviceGetHandleByUUID(uuid_of(device))
            return float(found.nvmlDeviceGetTotalEnergyConsumption(handle)) / 1e3
    if device.type == "cpu":
        with contextlib.suppress(OSError, ValueError):
            return int(Path("/sys/class/powercap/intel-rapl:0/energy_uj").read_text()) / 1e6
    return None
