"""The lock that a killed Snakemake leaves, and the jobs that end with it."""

import os
import signal
import subprocess
import sys
import time

import pytest

from tnfdt.run import lifeline

HOLD = """
from pathlib import Path
from tnfdt.run import lifeline
lifeline.hold(Path("."), lambda: True)"""
JOB = "import time; from tnfdt.run import lifeline; lifeline.end_with_run(); print(flush=True)"


@pytest.fixture
def locked(tmp_path, monkeypatch):
    """A folder with the lock of a Snakemake."""
    monkeypatch.setattr(lifeline, "_held", [])
    lock = tmp_path / "locks/0.output.lock"
    lock.parent.mkdir()
    lock.touch()
    (tmp_path / "tnfdt.lock").write_bytes(lifeline._machine())
    yield lock
    for handle in lifeline._held:
        os.close(handle)


def test_a_lock_without_a_living_holder_goes(locked):
    lifeline.hold(locked.parents[1], lambda: True)
    assert not locked.exists()


@pytest.mark.parametrize("machine", [b"", b"another 123"])
def test_a_lock_of_another_machine_stays(locked, machine):
    holder = locked.parents[1] / "tnfdt.lock"
    holder.write_bytes(machine)
    lifeline.hold(locked.parents[1], lambda: True)
    assert locked.exists()
    assert holder.read_bytes() == machine


def test_a_run_leaves_the_name_of_its_machine(tmp_path, monkeypatch):
    monkeypatch.setattr(lifeline, "_held", [])
    lifeline.hold(tmp_path, lambda: True)
    assert (tmp_path / "tnfdt.lock").read_bytes() == lifeline._machine()
    os.close(lifeline._held.pop())


def test_a_folder_of_somebody_else_is_left_to_snakemake(tmp_path, monkeypatch):
    monkeypatch.setattr(lifeline, "_held", [])
    (tmp_path / "tnfdt.lock").mkdir()  # cannot be opened for writing, whoever one is
    lifeline.hold(tmp_path, lambda: True)
    assert lifeline._held == []


def test_a_lock_with_cluster_jobs_stays(locked):
    lifeline.hold(locked.parents[1], lambda: False)
    assert locked.exists()


def test_a_lock_of_a_living_one_stays_until_it_is_killed(locked):
    folder = locked.parents[1]
    code = f"{HOLD}; print(flush=True); import time; time.sleep(60)"
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=folder, stdout=subprocess.PIPE
    ) as other:
        other.stdout.readline()
        locked.touch()
        lifeline.hold(folder, lambda: True)  # both now hold the folder
        assert locked.exists()
        other.kill()
    os.close(lifeline._held.pop())
    lifeline.hold(folder, lambda: True)
    assert not locked.exists()


def start(code, parent):
    pid = f"{lifeline.namespace()} {parent}"
    return subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, lifeline.PARENT: pid},
        stdout=subprocess.PIPE,
    )


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs Linux 5.3")
def test_a_job_ends_with_its_run_though_a_shell_stands_between():
    with subprocess.Popen(["sleep", "60"]) as run:
        job = start(f"{JOB}; time.sleep(60)", run.pid)
        job.stdout.readline()
        time.sleep(0.2)
        assert job.poll() is None
        run.kill()
    assert job.wait(5) == 128 + signal.SIGTERM
    job.stdout.close()


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs Linux 5.3")
def test_a_stopped_job_of_a_dead_run_is_woken_and_ends(locked, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with subprocess.Popen(["sleep", "60"]) as run:
        jobs = [start(f"{JOB}; time.sleep(60)", pid) for pid in (run.pid, os.getpid())]
        for job in jobs:
            job.stdout.readline()
            job.send_signal(signal.SIGSTOP)
        run.kill()
    with pytest.raises(subprocess.TimeoutExpired):
        jobs[0].wait(0.3)
    lifeline.hold(tmp_path, lambda: True)
    for _ in range(60):  # a busy machine may show a process as stopped a moment later
        if jobs[0].poll() is not None:
            break
        time.sleep(0.5)
        lifeline.wake()
    assert jobs[0].poll() == 128 + signal.SIGTERM
    assert jobs[1].poll() is None  # its run lives: somebody has stopped it on purpose
    jobs[1].kill()
    for job in jobs:
        job.wait()
        job.stdout.close()


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs Linux 5.3")
def test_a_job_that_starts_after_its_run_is_dead_does_nothing():
    with subprocess.Popen(["true"]) as run:
        pass
    job = start(f"{JOB}; time.sleep(60)", run.pid)
    assert job.wait(20) == 128 + signal.SIGTERM
    assert job.stdout.read() == b""
    job.stdout.close()


def test_a_cluster_job_does_not_end_with_the_run_that_submitted_it(monkeypatch):
    monkeypatch.setenv(lifeline.PARENT, "here 1")
    monkeypatch.setenv(lifeline.REMOTE, "")
    lifeline.take_part(False, lambda: True)
    assert lifeline.PARENT not in os.environ
    assert os.environ[lifeline.REMOTE]
