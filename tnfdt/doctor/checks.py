"""`tnfdt doctor`: whether this machine has what a study needs, a line per finding.

A line begins with ok, with note (nothing is wrong, but good to know) or with FIX (what is needed
does not work), and says what to do.
"""

from __future__ import annotations

import fcntl
import http.client
import importlib.util
import platform
import shutil
import socket
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from tnfdt import devices
from tnfdt.data.official import how_to_get
from tnfdt.data.registry import DATASETS
from tnfdt.files.locks import is_held
from tnfdt.run import space
from tnfdt.study.machine import Machine, tracking_uri
from tnfdt.study.schema import UserError
from tnfdt.study.study import Study

OK, NOTE, FIX = "ok", "note", "FIX"
_PATIENCE = 5.0  # seconds for a store to answer
_PORTS = {"http": 80, "https": 443, "postgresql": 5432, "mysql": 3306, "mssql": 1433}


class Finding(NamedTuple):
    """What was looked at, how it is, and what to do about it."""

    subject: str
    state: str
    text: str

    def __str__(self) -> str:
        return f"{self.state:5} {self.subject:9} {self.text}"


def run(study: Study, machine: Machine, device: str | None) -> int:
    """Print the findings, then, on a `device`, those of a self-test; 1 if anything needs a fix."""
    broken = False
    for check in (*CHECKS, *([_self_test(device)] if device else [])):
        for found in _reported(check, study, machine):
            print(found, flush=True)
            broken |= found.state == FIX
    return int(broken)


Check = Callable[[Study, Machine], Iterator[Finding]]


def _reported(check: Check, study: Study, machine: Machine) -> Iterator[Finding]:
    """A check that cannot be made is a finding, too, and does not keep the others away."""
    subject = check.__name__.strip("_")
    try:
        yield from check(study, machine)
    except UserError as error:
        yield Finding(subject, FIX, str(error))
    except (OSError, ImportError) as error:
        yield Finding(subject, FIX, f"{error}; pip install 'tnfdt[harness]' or fix the folder")


def python(study: Study, machine: Machine) -> Iterator[Finding]:
    yield Finding("python", OK, platform.python_version())


def torch(study: Study, machine: Machine) -> Iterator[Finding]:
    import torch

    built = f"built for CUDA {torch.version.cuda}" if torch.version.cuda else "built without CUDA"
    yield Finding("torch", OK, f"{torch.__version__}, {built}")


def gpus(study: Study, machine: Machine) -> Iterator[Finding]:
    """The driver, then each GPU that CUDA shows with its free memory."""
    import torch

    if problem := devices.cuda_problem():
        yield Finding("gpus", FIX, problem)
    elif not torch.cuda.is_available():
        if machine.device.startswith("cuda"):
            yield Finding("gpus", FIX, f"none; device is {machine.device}, set it to auto or cpu")
        else:
            yield Finding("gpus", NOTE, f"none; device is {machine.device}, the CPU will work")
    else:
        try:
            yield from _each_gpu()
        except Exception as error:  # of NVML's own kinds, and where there is no NVML
            yield Finding("gpus", NOTE, f"NVML is silent ({error}): no energy in records")


def _each_gpu() -> Iterator[Finding]:
    import torch

    nvml = devices.nvml()
    driver, newest = nvml.nvmlSystemGetDriverVersion(), nvml.nvmlSystemGetCudaDriverVersion()
    known = f"CUDA up to {newest // 1000}.{newest % 1000 // 10}"
    yield Finding("driver", OK, f"{driver}, {known}")
    for index in range(torch.cuda.device_count()):
        uuid = devices.uuid_of(torch.device("cuda", index))
        memory = nvml.nvmlDeviceGetMemoryInfo(nvml.nvmlDeviceGetHandleByUUID(uuid))
        name = torch.cuda.get_device_name(index)
        free = f"{memory.free / 2**30:.1f} of {memory.total / 2**30:.1f} GiB free"
        yield Finding(f"cuda:{index}", OK, f"{name}, {free}, {uuid}")


def disk(study: Study, machine: Machine) -> Iterator[Finding]:
    from tnfdt.plan.workload import disk_bytes

    at_once = devices.jobs_at_once(machine.device, machine.gpu_slots, machine.threads)
    need, free = disk_bytes(study, machine, at_once), space.left(Path(machine.results_dir))
    takes = f"{study.name} takes {need / 1e6:,.0f} MB"
    text = f"{free / 1e9:,.1f} GB free in {machine.results_dir}, {takes}"
    enough = free > need
    yield Finding("disk", OK if enough else FIX, text if enough else f"{text}; free some")


def flock(study: Study, machine: Machine) -> Iterator[Finding]:
    """Whether a lock of a file in results_dir keeps a second one out."""
    folder = space.existing(Path(machine.results_dir))
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".doctor") as first:
        fcntl.flock(first, fcntl.LOCK_EX | fcntl.LOCK_NB)
        works = is_held(first.name)
    broken = f"does not lock in {folder}; mount it with flock, or move results_dir"
    yield Finding("flock", OK if works else FIX, f"works in {folder}" if works else broken)


def data(study: Study, machine: Machine) -> Iterator[Finding]:
    """Each dataset of the grid: found, with its checksums, or missing; nothing is downloaded."""
    paths = machine.paths(study.name)
    for name in study.grid_datasets:
        path = study.dataset_path(name, machine)
        if paths.manifest(name).is_file():
            yield Finding("data", OK, f"{name} is prepared")
        elif path is not None:
            yield _own(name, Path(path))
        else:
            yield _registered(name, Path(machine.data_dir))


def _own(name: str, path: Path) -> Finding:
    if path.is_file():
        return Finding("data", OK, f"{name} is {path}")
    return Finding("data", FIX, f"{name}: {path} does not exist; give the path of an .npz")


def _registered(name: str, data_dir: Path) -> Finding:
    entry = DATASETS[name]
    with tempfile.TemporaryDirectory() as work:
        try:
            found = entry.read(data_dir, Path(work))
        except UserError as error:
            return Finding("data", FIX, str(error))
    if found is not None:
        return Finding("data", OK, f"{name} from {found.source}, checksums are right")
    other = f", or {entry.alternative}" if entry.alternative else ""
    wanted = how_to_get(entry.files(), data_dir)
    return Finding("data", NOTE, f"{name} is missing; a run downloads it, or put {wanted}{other}")


def tracking(study: Study, machine: Machine) -> Iterator[Finding]:
    from tnfdt.tracking.address import mask_uri, sqlite_path

    uri = tracking_uri(machine)
    if uri is None:
        yield Finding("tracking", NOTE, "is off; set tracking_uri to see runs in MLflow")
        return
    path = sqlite_path(uri)
    try:
        yield Finding("tracking", OK, _writable(path) if path else _answer(uri))
    except (OSError, http.client.HTTPException, ValueError) as error:
        what = "a run goes on without it, `tnfdt track` fills it later"
        yield Finding("tracking", FIX, f"{mask_uri(uri)} cannot be reached ({error}); {what}")


def _writable(path: Path) -> str:
    with tempfile.TemporaryFile(dir=space.existing(path.parent)):
        return f"{path} can be written"


def _answer(uri: str) -> str:
    """How a server answers; that it wants a password is an answer, too."""
    from tnfdt.tracking.address import mask_uri

    place = urlsplit(uri)
    scheme = place.scheme.partition("+")[0]
    if scheme in ("http", "https") and not place.username:
        try:
            with urllib.request.urlopen(f"{uri.rstrip('/')}/health", timeout=_PATIENCE):
                pass
        except urllib.error.HTTPError as error:
            if error.code not in (401, 403):
                raise
    else:
        address = (place.hostname or "", place.port or _PORTS[scheme])
        socket.create_connection(address, timeout=_PATIENCE).close()
    return f"{mask_uri(uri)} answers"


def slurm(study: Study, machine: Machine) -> Iterator[Finding]:
    if not shutil.which("sbatch"):
        yield Finding("slurm", NOTE, "is not here; only a cluster needs it")
    elif importlib.util.find_spec("snakemake_executor_plugin_slurm") is None:
        yield Finding("slurm", NOTE, "Snakemake's plugin is missing; pip install 'tnfdt[slurm]'")
    else:
        yield Finding("slurm", OK, "sbatch and Snakemake's plugin are here")


def latex(study: Study, machine: Machine) -> Iterator[Finding]:
    if shutil.which("pdflatex"):
        yield Finding("latex", OK, "pdflatex is here")
    else:
        yield Finding(
            "latex", NOTE, "is not here; tables are made as .tex, .csv and .md all the same"
        )


CHECKS: tuple[Check, ...] = (python, torch, gpus, disk, flock, data, tracking, slurm, latex)


def _self_test(device: str) -> Check:
    def self_test(study: Study, machine: Machine) -> Iterator[Finding]:
        from tnfdt.doctor import selftest

        for name, works, text in selftest.run(study, machine, device):
            yield Finding(name, OK if works else FIX, text)

    return self_test
