import os
import signal

import pytest
import torch

from tnfdt.train import checkpoint

STATE = {"model": {"w": torch.arange(3.0)}, "epoch": 2, "history": [{"loss": 0.5}]}


def test_round_trip(tmp_path):
    path = tmp_path / "checkpoint.pt"
    checkpoint.save(path, STATE, identity="abc")
    loaded = checkpoint.load(path, identity="abc")
    assert loaded is not None
    assert torch.equal(loaded["model"]["w"], STATE["model"]["w"])
    assert loaded["history"] == STATE["history"]
    assert os.listdir(tmp_path) == ["checkpoint.pt"]


def test_none_where_there_is_none(tmp_path, capsys):
    assert checkpoint.load(tmp_path / "checkpoint.pt", identity="abc") is None
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("damage", ["truncate", "foreign", "garbage", "empty", "pickle"])
def test_a_useless_checkpoint_is_told_in_one_line(tmp_path, capsys, damage):
    path = tmp_path / "checkpoint.pt"
    checkpoint.save(path, STATE, identity="other" if damage == "foreign" else "abc")
    content = path.read_bytes()
    if damage == "truncate":
        path.write_bytes(content[: len(content) // 2])
    elif damage == "garbage":
        path.write_bytes(os.urandom(1000))
    elif damage == "empty":
        path.write_bytes(b"")
    elif damage == "pickle":
        torch.save({"identity": "abc", "state": Evil()}, path)
    assert checkpoint.load(path, identity="abc") is None
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert str(path) in told
    assert "starts over" in told


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
