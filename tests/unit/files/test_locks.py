"""Locks: one at a time, also when the one before failed and took the lock's file away."""

import threading
from pathlib import Path

import pytest
from filelock import FileLock, Timeout

from tnfdt.files.locks import exclusive


def test_work_that_fails_leaves_no_trace(tmp_path):
    with pytest.raises(ValueError, match="no"), exclusive(tmp_path / "a/b/.lock"):
        raise ValueError("no")
    assert list(tmp_path.iterdir()) == []


def test_work_that_fails_keeps_what_was_there(tmp_path):
    path = tmp_path / ".lock"
    path.touch()
    with pytest.raises(ValueError, match="no"), exclusive(path):
        raise ValueError("no")
    assert path.exists()


def test_a_folder_that_cannot_be_made_is_an_error(monkeypatch, tmp_path):
    def refuse(*_, **__):
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr(Path, "mkdir", refuse)  # as below /proc
    with pytest.raises(FileNotFoundError), exclusive(tmp_path / "a/.lock"):
        pytest.fail("locked")


@pytest.mark.parametrize("turn", range(20))
def test_who_waited_for_a_lock_that_was_removed_holds_the_only_one(tmp_path, turn):
    path, waiting, inside, done = tmp_path / "a/.lock", *(threading.Event() for _ in range(3))

    def second():
        with exclusive(path, waiting.set):
            inside.set()
            done.wait(10)

    thread = threading.Thread(target=second)
    with pytest.raises(ValueError, match="no"), exclusive(path):
        thread.start()
        assert waiting.wait(10)
        raise ValueError("no")
    assert inside.wait(10)
    with pytest.raises(Timeout):
        FileLock(path).acquire(timeout=0.2)
    done.set()
    thread.join()
