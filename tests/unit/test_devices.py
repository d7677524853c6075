"""GPU leases with pretended devices and real processes, some of them killed."""

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from tests.pretended_gpus import PretendedCuda, PretendedNvml
from tnfdt import devices
from tnfdt.study.schema import UserError

# Holds a lease for a while and writes when it had which device.
HOLDER = """
import json, sys, time
from pathlib import Path
from tnfdt.devices import lease
folder, name, seconds = Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])
with lease(["0", "1"], 2, folder / "locks") as gpu:
    begin = time.monotonic()
    (folder / f"{name}.begin").write_text(json.dumps([gpu, begin]))
    time.sleep(seconds)
    (folder / f"{name}.end").write_text(json.dumps([gpu, begin, time.monotonic()]))
"""


def start(folder: Path, name: str, seconds: float) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, "-c", HOLDER, str(folder), name, str(seconds)])


def wait_for(path: Path, seconds: float = 60) -> list:
    deadline = time.monotonic() + seconds
    while not path.exists() or not path.read_text():
        assert time.monotonic() < deadline, f"{path} never came"
        time.sleep(0.02)
    return json.loads(path.read_text())


def test_eight_processes_share_two_devices_with_two_slots(tmp_path):
    """No device ever has more holders than slots, and killed holders free theirs."""
    jobs = {str(i): start(tmp_path, str(i), 0.4) for i in range(6)}
    doomed = {str(i): start(tmp_path, str(i), 600) for i in (6, 7)}
    for name, process in doomed.items():
        wait_for(tmp_path / f"{name}.begin")
        process.kill()
        process.wait()
    for process in jobs.values():
        assert process.wait(timeout=60) == 0
    held = [json.loads((tmp_path / f"{name}.end").read_text()) for name in jobs]
    assert {gpu for gpu, _, _ in held} == {"0", "1"}
    for gpu, begin, _ in held:
        overlapping = [1 for other, b, e in held if other == gpu and b <= begin < e]
        assert len(overlapping) <= 2


def test_a_lease_survives_a_holder_killed_at_any_moment(tmp_path):
    rng = random.Random(0)
    for i in range(3):
        process = start(tmp_path, f"k{i}", 600)
        time.sleep(rng.uniform(0, 0.5))
        process.kill()
        process.wait()
    with devices.lease(["0"], 1, tmp_path / "locks") as gpu:
        assert gpu == "0"


def test_jobs_spread_over_devices_before_they_share(tmp_path):
    with devices.lease(["0", "1"], 2, tmp_path) as a, devices.lease(["0", "1"], 2, tmp_path) as b:
        assert {a, b} == {"0", "1"}


def test_an_error_in_the_job_is_not_swallowed_and_frees_the_slot(tmp_path):
    with pytest.raises(KeyError), devices.lease(["0"], 1, tmp_path):
        raise KeyError
    with devices.lease(["0"], 1, tmp_path):
        pass


@pytest.fixture
def cuda(monkeypatch, tmp_path):
    """Four pretended GPUs, and leases in a folder of the test's own."""
    pretended = PretendedCuda()
    monkeypatch.setattr(torch, "cuda", pretended)
    monkeypatch.setitem(sys.modules, "pynvml", PretendedNvml())
    monkeypatch.setattr(devices, "_gpus_of_driver", lambda: 4)
    monkeypatch.setattr(devices.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return pretended


def leased(folder):
    """The numbers of the GPUs that have a lock file."""
    names = (path.name for path in folder.rglob("*.lock"))
    return sorted(name.partition("GPU-")[2][:1] or "MIG" for name in names)


@pytest.mark.parametrize(
    ("visible", "count"),
    [
        (None, 4),
        ("0", 1),
        ("2,3", 2),
        ("3, 1", 2),
        ("", 0),
        ("-1", 0),
        ("1,-1,2", 1),
        ("7", 0),
        ("0,0", 0),
        ("NoDevFiles", 0),
        (f"GPU-{PretendedCuda.UUIDS[2]}", 1),
        ("GPU-3,GPU-1", 2),
        ("MIG-11112222-3333-4444-5555-666677778888", 1),
        ("MIG-GPU-1/0/0,MIG-GPU-1/1/0", 1),
    ],
)
@pytest.mark.usefixtures("cuda")
def test_gpus_are_counted_without_torch_as_cuda_counts_them(monkeypatch, visible, count):
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert devices.gpu_count() == count
    assert devices.wants_gpu("auto") == (count > 0)
    assert devices.jobs_at_once("cuda", 2, 1) == 2 * max(count, 1)
    assert devices.jobs_at_once("cuda:1", 2, 1) == 2
    assert devices.jobs_at_once("cpu", 2, 10**6) == 1


def test_gpus_of_the_driver_are_its_folders(monkeypatch, tmp_path):
    monkeypatch.setattr(devices, "_PROC", tmp_path)
    for name in ("0000:01:00.0", "0000:02:00.0"):
        (tmp_path / name).mkdir()
    assert devices._gpus_of_driver.__wrapped__() == 2
    monkeypatch.setattr(devices, "_PROC", tmp_path / "none")
    assert devices._gpus_of_driver.__wrapped__() == 0


@pytest.mark.parametrize("variable", ["SLURM_JOB_ID", "JOB_ID", "PBS_JOBID"])
def test_jobs_share_the_gpus_of_an_allocation(monkeypatch, tmp_path, cuda, variable):
    """Also inside a cluster's job no two take the first GPU."""
    monkeypatch.setenv(variable, "7")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
    with devices.acquire("auto", 1) as first, devices.acquire("cuda", 1) as second:
        assert [first.index, second.index] == [0, 1]
        assert cuda.current == 1
        assert leased(tmp_path) == ["2", "3"]


def test_a_gpu_has_one_lease_by_whatever_name(monkeypatch, tmp_path, cuda):
    with devices.acquire("cuda:1", 2) as device:
        assert device.index == 1
    for visible in ("1", f"GPU-{cuda.UUIDS[1]}"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        with devices.acquire("cuda", 2) as device:
            assert device.index == 0
    assert leased(tmp_path) == ["1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-5/0/0")
    with devices.acquire("auto", 1):
        assert leased(tmp_path) == ["1", "MIG"]


def test_an_explicit_gpu_is_waited_for(monkeypatch, cuda):
    def too_long(seconds):
        raise TimeoutError

    monkeypatch.setattr(devices.time, "sleep", too_long)
    with devices.acquire("cuda:1", 1):
        with pytest.raises(TimeoutError), devices.acquire("cuda:1", 1):
            pass
        with devices.acquire("cuda:2", 1) as other:
            assert other.index == 2


def test_energy_is_read_from_the_gpu_that_works(monkeypatch, cuda):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
    assert [devices.energy_counter(torch.device("cuda", i)) for i in (0, 1)] == [2.0, 3.0]


# A job of a machine with four pretended GPUs: writes which one it got, and when.
JOB = """
import json, sys, time
from pathlib import Path
from types import SimpleNamespace as Made
from tests.pretended_gpus import PretendedCuda
sys.modules["torch"] = Made(cuda=PretendedCuda(), device=lambda kind, index: Made(index=index))
from tnfdt import devices
with devices.acquire(sys.argv[2], 1) as device:
    begin, uuid = time.monotonic(), devices.uuid_of(device)
    time.sleep(0.6)
    Path(sys.argv[1]).write_text(json.dumps([uuid, begin, time.monotonic()]))
"""


def test_processes_that_name_gpus_in_other_ways_never_share_one(tmp_path):
    """Processes by number, by UUID and by cuda:N, inside one allocation: one job a GPU."""
    by_uuid = ",".join(f"GPU-{uuid}" for uuid in PretendedCuda.UUIDS[:2])
    ways = [("0,1", "auto"), (by_uuid, "cuda"), ("1,0", "cuda:0"), ("0,1", "cuda:1")]
    jobs = []
    for number, (visible, setting) in enumerate(ways):
        environment = {
            **os.environ,
            "CUDA_VISIBLE_DEVICES": visible,
            "TMPDIR": str(tmp_path),
            "SLURM_JOB_ID": "7",
        }
        command = [sys.executable, "-c", JOB, str(tmp_path / f"{number}.json"), setting]
        jobs.append(subprocess.Popen(command, env=environment))
    assert [job.wait(timeout=120) for job in jobs] == [0] * len(jobs)
    held = [json.loads((tmp_path / f"{number}.json").read_text()) for number in range(len(jobs))]
    assert held[2][0] == held[3][0] == f"GPU-{PretendedCuda.UUIDS[1]}"
    for uuid, begin, end in held:
        assert sum(other == uuid and b < end and begin < e for other, b, e in held) == 1


def test_a_driver_too_old_for_torch_is_no_silent_cpu(monkeypatch, cuda):
    cuda.works = False
    monkeypatch.setattr(torch.version, "cuda", "13.2")
    for setting in ("auto", "cuda"):
        with pytest.raises(UserError, match=r"CUDA 13\.2, driver 535.* up to 12\.2; update"):
            devices.check(setting)
    monkeypatch.setattr(torch.version, "cuda", None)
    assert "built without CUDA" in devices.cuda_problem()
    devices.check("cpu")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    devices.check("auto")


def test_a_container_without_the_driver_has_no_problem(monkeypatch, cuda):
    class LibraryNotFoundError(Exception):
        pass

    def missing():
        raise LibraryNotFoundError

    cuda.works = False
    monkeypatch.setattr(sys.modules["pynvml"], "nvmlInit", missing)
    assert devices.cuda_problem() is None


def test_devices_that_are_not_there_are_told(monkeypatch, cuda):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    with pytest.raises(UserError, match="cuda:1: 0 CUDA devices"), devices.acquire("cuda:1", 1):
        pass
    with devices.acquire("auto", 1) as device:
        assert device.type == "cpu"


def plant_link(folder):
    (folder.parent / "elsewhere").mkdir(mode=0o700)
    folder.symlink_to(folder.parent / "elsewhere")


def make_shared(folder):
    folder.mkdir()
    folder.chmod(0o777)


@pytest.mark.parametrize("plant", [plant_link, make_shared, Path.touch])
def test_leases_are_not_taken_in_a_folder_that_others_may_change(tmp_path, plant):
    plant(tmp_path / "leases")
    with pytest.raises(UserError, match="0700"), devices.lease(["0"], 1, tmp_path / "leases"):
        pass
    assert not list(tmp_path.rglob("*.lock"))


def test_the_folder_of_leases_is_the_users_own(tmp_path, monkeypatch):
    with devices.lease(["0"], 1, tmp_path / "leases"):
        assert (tmp_path / "leases").stat().st_mode & 0o777 == 0o700
    monkeypatch.setattr(devices.os, "getuid", lambda: 12345)
    with pytest.raises(UserError, match="your own"), devices.lease(["0"], 1, tmp_path / "leases"):
        pass


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), True),
        (RuntimeError("CUDA error: out of memory"), True),  # of a context that finds no place
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate"), True),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
    ],
)
def test_every_way_to_run_out_of_gpu_memory_is_one_line(error, told):
    expected = UserError if told else RuntimeError
    with pytest.raises(expected) as raised, devices.memory_errors("a larger GPU"):
        raise error
    assert str(raised.value) == ("a larger GPU" if told else str(error))


def test_arithmetic_is_deterministic_and_fp32_means_fp32():
    threads = torch.get_num_threads()
    try:
        devices.set_arithmetic("fp32", 1)
        assert torch.are_deterministic_algorithms_enabled()
        assert torch.is_deterministic_algorithms_warn_only_enabled()
        assert torch.get_num_threads() == 1
        assert torch.backends.cudnn.conv.fp32_precision == "ieee"
        devices.set_arithmetic("tf32", 1)
        assert torch.backends.cudnn.conv.fp32_precision == "tf32"
        assert not torch.utils.deterministic.fill_uninitialized_memory
        devices.set_precision("fp32")
        assert torch.backends.cudnn.conv.fp32_precision == "ieee"
        assert torch.backends.cuda.matmul.fp32_precision == "ieee"
    finally:
        torch.use_deterministic_algorithms(False)
        torch.set_num_threads(threads)


@pytest.mark.parametrize(("precision", "allowed"), [("fp32", False), ("tf32", True)])
def test_a_torch_before_2_9_has_a_name_of_its_own_for_tf32(monkeypatch, precision, allowed):
    class Backend:
        __slots__ = ("allow_tf32",)

    backends = SimpleNamespace(cudnn=Backend(), cuda=SimpleNamespace(matmul=Backend()))
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(backends=backends))
    devices.set_precision(precision)
    assert backends.cudnn.allow_tf32 == backends.cuda.matmul.allow_tf32 == allowed
