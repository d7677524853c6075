"""What is asked of Slurm: jobs that stop before their time is up and are queued again."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tnfdt.run import slurm
from tnfdt.run.lifeline import REMOTE
from tnfdt.study.schema import UserError
from tnfdt.train.checkpoint import Interrupted


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0:45", 45),
        ("12:00", 720),
        ("1:02:03", 3723),
        ("2-00:00:01", 172801),
        ("UNLIMITED", None),
        ("INVALID", None),
        ("", None),
        (None, None),
    ],
)
def test_the_time_that_is_left(monkeypatch, text, seconds):
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setattr(slurm, "_ask", lambda *command: text)
    assert slurm.seconds_left() is None  # a user's own job
    monkeypatch.setenv(REMOTE, "yes")
    assert slurm.seconds_left() == seconds
    monkeypatch.delenv("SLURM_JOB_ID")
    assert slurm.seconds_left() is None


@pytest.fixture
def asked(monkeypatch):
    """The requests to Slurm of a job with two seconds left; it is not ended by Slurm."""
    calls = []
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setattr(slurm, "_ask", lambda *command: calls.append(command) or "")
    monkeypatch.setattr(slurm, "seconds_left", lambda: 0.2)
    monkeypatch.setattr(slurm, "_TO_BE_ENDED", 0)
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    yield calls
    signal.signal(signal.SIGTERM, before)


def test_a_job_that_runs_out_of_time_is_queued_again(asked, tmp_path, capsys):
    with pytest.raises(SystemExit), slurm.in_time(tmp_path):
        (tmp_path / "eps0.1.partial").touch()
        signal.pause()
    assert asked == [("scontrol", "requeue", "7")]
    assert "the job is queued again" in capsys.readouterr().err


def test_a_job_that_got_nowhere_is_an_error(asked, tmp_path):
    (tmp_path / "checkpoint.pt").touch()
    with pytest.raises(UserError, match="raise time_limit"), slurm.in_time(tmp_path):
        signal.pause()
    assert asked == []


def test_only_the_time_limit_queues_a_job_again(asked, tmp_path):
    with pytest.raises(Interrupted), slurm.in_time(tmp_path):
        (tmp_path / "checkpoint.pt").touch()
        raise Interrupted("by hand")
    with slurm.in_time(tmp_path):
        pass
    assert asked == []


def test_our_sacct_comes_first(monkeypatch):
    monkeypatch.setenv("PATH", os.defpath)
    slurm.answer_for_sacct()
    found = subprocess.run(["sh", "-c", "command -v sacct"], capture_output=True, text=True)
    assert Path(found.stdout.strip()) == slurm.SHIMS / "sacct"
