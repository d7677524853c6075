"""The process that follows a run, from the run's side: a script stands in for `tnfdt`."""

import os
import signal
import time

import pytest

from tnfdt.run import follower

SCRIPT = """#!/bin/sh
if [ "$2" = "--follow" ]; then
    trap 'echo followed; exit {code}' TERM
    touch ready
    while true; do sleep 0.05; done
fi
echo once
"""


@pytest.fixture
def start(tmp_path, monkeypatch):
    """Start a follower that ends with this exit code when it is asked to."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")

    def started(code=0):
        script = tmp_path / "tnfdt"
        script.write_text(SCRIPT.format(code=code))
        script.chmod(0o755)
        follower.start()
        while not (tmp_path / "ready").exists():
            time.sleep(0.01)
        return follower._started[0]

    yield started
    for process in follower._started:
        process.kill()
    follower._started.clear()


def test_the_follower_has_the_last_word(start):
    start()
    assert follower.finish() == "followed"


def test_a_failure_that_it_reported_is_not_tried_again(start):
    start(code=2)
    assert follower.finish() == "followed"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_one_that_was_killed_is_made_up_for(start, number):
    process = start(code=1)
    process.send_signal(number)
    process.wait()
    assert follower.finish() == "once"


def test_a_run_without_one_is_tracked_at_its_end(start):
    start().kill()
    follower._started.clear()
    assert follower.finish() == "once"


def test_ctrl_c_does_not_reach_it(start):
    process = start()
    assert os.getpgid(process.pid) != os.getpgid(0)


def test_one_that_cannot_start_is_one_warning(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("PATH", str(tmp_path))
    follower.start()
    assert not follower._started
    assert len(caplog.messages) == 1
