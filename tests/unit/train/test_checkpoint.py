import os
import signal

import pytest
import torch

from tnfdt.train import checkpoint

CODE = {"sources": "1a2b", "torch": "2", "timm": "1"}
STATE = {"model": {"w": torch.arange(3.0)}, "epoch": 2, "history": [{"loss": 0.5}]}


def test_round_trip(tmp_path):
    path = tmp_path / "checkpoint.pt"
    checkpoint.save(path, STATE, identity="abc", code=CODE)
    loaded = checkpoint.load(path, identity="abc", code=CODE)
    assert loaded is not None
    assert torch.equal(loaded["model"]["w"], STATE["model"]["w"])
    assert loaded["history"] == STATE["history"]
    assert os.listdir(tmp_path) == ["checkpoint.pt"]


def test_none_where_there_is_none(tmp_path, capsys):
    assert checkpoint.load(tmp_path / "checkpoint.pt", identity="abc", code=CODE) is None
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("damage", ["truncate", "foreign", "garbage", "empty", "pickle"])
def test_a_useless_checkpoint_is_told_in_one_line(tmp_path, capsys, damage):
    path = tmp_path / "checkpoint.pt"
    checkpoint.save(path, STATE, identity="other" if damage == "foreign" else "abc", code=CODE)
    content = path.read_bytes()
    if damage == "truncate":
        path.write_bytes(content[: len(content) // 2])
    elif damage == "garbage":
        path.write_bytes(os.urandom(1000))
    elif damage == "empty":
        path.write_bytes(b"")
    elif damage == "pickle":
        torch.save({"identity": "abc", "state": Evil()}, path)
    assert checkpoint.load(path, identity="abc", code=CODE) is None
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert str(path) in told
    assert "starts over" in told


@pytest.mark.parametrize("wrote", [CODE | {"sources": "3c4d"}, CODE | {"torch": "1"}, None])
def test_a_checkpoint_of_other_code_starts_over_and_says_which(tmp_path, capsys, wrote):
    path = tmp_path / "checkpoint.pt"
    checkpoint.save(path, STATE, identity="abc", code=wrote or CODE)
    if wrote is None:  # as before the code was part of a checkpoint
        torch.save({"identity": "abc", "state": STATE}, path)
    assert checkpoint.load(path, identity="abc", code=CODE) is None
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert "was written by other code" in told
    assert ("torch 1, now 2" if wrote and wrote["torch"] == "1" else "now 1a2b") in told


class Evil:
    """A pickle that would run code when it is loaded without weights_only."""

    def __reduce__(self):
        return (pytest.fail, ("the checkpoint ran code",))


def test_stop_requests_collects_signals_and_restores_handlers():
    before = signal.getsignal(signal.SIGTERM)
    with checkpoint.stop_requests() as stop:
        assert not stop
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop == [signal.SIGTERM]
    assert signal.getsignal(signal.SIGTERM) is before
