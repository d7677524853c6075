"""The journal of a training: what is appended, what is read, and what a training notices."""

import errno
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tnfdt.files import journal
from tnfdt.files.journal import Journal
from tnfdt.study.paths import JOURNAL

PARAMS = {
    "config": {"model": "resnet34", "training": {"lr": 0.1, "epochs": 3}, "blend": None},
    "interpretation": {"tn_backward": "paper"},
    "commit": "c0ffee+changes",
    "hardware": {"cpu": "a cpu", "cores": 2},
}


def row(epoch, begin=1000.0, loss=None):
    results = {"lr": 0.1, "loss": loss or 2.0 / epoch, "test_accuracy": (40 + epoch) / 100}
    return {"epoch": epoch, **results, "time": begin + 10 * epoch}


def write(folder, epochs, start=1000.0, params=PARAMS, end=None):
    log = Journal(folder, params)
    log.start = log.created = start
    for epoch in epochs:
        log.log_epoch(row(epoch, start))
    if end:
        journal.append(log.path, {"end": end, "time": 5.0})


def test_a_journal_is_read_as_it_was_written(tmp_path):
    write(tmp_path, [1, 2], end="FAILED")
    found = journal.read(tmp_path)
    assert (found.start, found.end, list(found.rows)) == (1000.0, "FAILED", [1, 2])
    assert found.rows[2] == row(2)
    assert found.params == PARAMS


def test_a_resumed_training_keeps_its_start_and_repeats_no_epoch(tmp_path):
    write(tmp_path, [1, 2], end="KILLED")
    write(tmp_path, [2, 3], start=9000.0)
    found = journal.read(tmp_path)
    assert (found.start, found.end) == (1000.0, None)
    assert [item["time"] for item in found.rows.values()] == [1010.0, 1020.0, 9030.0]


def test_another_machine_resumes_but_another_config_starts_over(tmp_path):
    write(tmp_path, [1])
    write(tmp_path, [2], params=PARAMS | {"hardware": {"cpu": "another"}, "commit": "later"})
    found = journal.read(tmp_path)
    assert (found.params["hardware"]["cpu"], list(found.rows)) == ("another", [1, 2])
    write(tmp_path, [3], params=PARAMS | {"config": {"training": {"lr": 0.2}}})
    assert list(journal.read(tmp_path).rows) == [3]


def test_a_training_that_starts_over_by_other_code_drops_the_old_rows(tmp_path):
    write(tmp_path, [1, 2, 3], end="KILLED")
    log = Journal(tmp_path, PARAMS)
    log.log_epoch(row(1, 9000.0, loss=7.0))
    found = journal.read(tmp_path)
    assert {epoch: item["loss"] for epoch, item in found.rows.items()} == {1: 7.0}
    assert found.start == log.created


def test_a_finished_training_done_again_starts_over(tmp_path):
    write(tmp_path, [1, 2], end="FINISHED")
    write(tmp_path, [1], start=9000.0)
    found = journal.read(tmp_path)
    assert (found.start, list(found.rows), found.end) == (9000.0, [1], None)


@given(cut=st.integers(min_value=0))
def test_a_torn_journal_loses_at_most_its_last_line(tmp_path_factory, cut):
    folder = tmp_path_factory.mktemp("torn")
    write(folder, [1, 2, 3])
    path = folder / JOURNAL
    data = path.read_bytes()
    whole = data[: cut % len(data)]
    path.write_bytes(whole)
    journal.append(path, row(9))
    lines = whole.count(b"\n")  # the head and the epochs that are whole
    found = journal.read(folder)
    if lines:
        assert list(found.rows)[: lines - 1] == list(range(1, lines))
        assert 9 in found.rows
    else:
        assert found is None or whole.endswith(b"}")


@given(st.binary(max_size=200))
def test_any_bytes_can_be_read_as_a_journal(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("noise") / JOURNAL
    path.write_bytes(data)
    journal.read(path.parent)


def test_a_cell_found_done_is_not_touched(tmp_path):
    write(tmp_path, [1], end="FINISHED")
    before = (tmp_path / JOURNAL).read_bytes()
    with Journal(tmp_path, PARAMS):
        pass
    assert (tmp_path / JOURNAL).read_bytes() == before


class Stopped(Exception):  # noqa: N818
    pass


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (None, "FINISHED"),
        (ValueError, "FAILED"),
        (KeyboardInterrupt, "KILLED"),
        (Stopped, "KILLED"),
    ],
)
def test_how_a_training_ended_is_its_last_line(tmp_path, error, status):
    def train():
        with Journal(tmp_path, PARAMS, stops=(Stopped,)) as log:
            log.log_epoch(row(1))
            if error:
                raise error

    if error:
        with pytest.raises(error):
            train()
    else:
        train()
    assert journal.read(tmp_path).end == status


def test_a_full_disk_is_one_warning(tmp_path, monkeypatch, caplog):
    def full(*args):
        raise OSError(errno.ENOSPC, "No space left on device")

    with Journal(tmp_path, PARAMS) as log:
        log.log_epoch(row(1))
        monkeypatch.setattr(journal.os, "write", full)
        for epoch in (2, 3):
            log.log_epoch(row(epoch))
        monkeypatch.undo()
        log.log_epoch(row(4))
    assert len(caplog.messages) == 1
    assert "No space left" in caplog.text
    assert list(journal.read(tmp_path).rows) == [1, 4]


def test_an_epoch_without_a_time_gets_one(tmp_path):
    before = time.time()
    with Journal(tmp_path, PARAMS) as log:
        log.log_epoch({"epoch": 1, "loss": 0.5})
    assert before <= journal.read(tmp_path).rows[1]["time"] <= time.time()
