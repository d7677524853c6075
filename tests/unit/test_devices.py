"""GPU leases with pretended devices and real processes, some of them killed."""

import json
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

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


def pretend_gpus(monkeypatch, count):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)


def test_a_cluster_has_chosen_already(monkeypatch):
    pretend_gpus(monkeypatch, 1)
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    with devices.acquire("cuda", 1) as first, devices.acquire("cuda", 1) as second:
        assert first == second == torch.device("cuda:0")


def test_visible_devices_are_leased_by_their_physical_number(monkeypatch, tmp_path):
    pretend_gpus(monkeypatch, 2)
    monkeypatch.setattr(devices.tempfile, "gettempdir", lambda: str(tmp_path))
    for key in devices._CLUSTER:
        monkeypatch.delenv(key, raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
    with devices.acquire("auto", 1) as first, devices.acquire("auto", 1) as second:
        assert [first.index, second.index] == [0, 1]
        assert {path.name.split("-")[-2] for path in tmp_path.rglob("*.lock")} == {"2", "3"}


def test_devices_that_are_not_there_are_told(monkeypatch):
    pretend_gpus(monkeypatch, 0)
    with pytest.raises(UserError, match="cuda:1: 0 CUDA devices"), devices.acquire("cuda:1", 1):
        pass
    with devices.acquire("auto", 1) as device:
        assert device.type == "cpu"


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
