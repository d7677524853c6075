"""Progress: a bar with the numbers behind it in a terminal, plain lines elsewhere."""

import io
import sys

import pytest

from tnfdt.files.progress import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("terminal", [True, False])
def test_epoch_loss_rate_and_time_left_are_shown(monkeypatch, terminal):
    stream = Terminal() if terminal else io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    progress = Progress("c10/vanilla", 400, 100)
    progress.reach(200)
    progress.report(epoch="2/4", loss="0.5")
    progress.close()
    shown = stream.getvalue()
    if terminal:
        assert "200/400" in shown
        assert "images/s, epoch=2/4, loss=0.5" in shown
        assert "\n" not in shown.strip()
    else:
        assert shown == "c10/vanilla: 50 %, 0 s left, epoch 2/4, loss 0.5\n"


def test_a_log_is_not_flooded(monkeypatch, capsys):
    monkeypatch.setattr("tnfdt.files.progress._LOG_SECONDS", 1000)
    progress = Progress("c10/vanilla", 400)
    for done in range(400):
        progress.reach(done)
    assert capsys.readouterr().err == ""
