"""Tracking without MLflow: addresses, journals, and what is read from a cell's files."""

import csv
import errno
import json
import os
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tnfdt.tracking.system import Sampler

from tnfdt.files import journal
from tnfdt.files.atomic import write_json
from tnfdt.files.records import SCHEMA, identity
from tnfdt.study.paths import Cell
from tnfdt.study.schema import UserError
from tnfdt.tracking import CellTracker, address, embedded, live, page, recorded_run_ids
from tnfdt.tracking.points import Point, millis
from tnfdt.tracking.store import PARENT, Known, chunks, contradicts
from tnfdt.tracking.view import RunView, flatten, flatten_params, read_cell, run_name

CELL = Cell("c10", "resnet34", "tn_fdt", 0)
HISTORY = ("epoch", "lr", "loss", "soft_cross_entropy", "train_accuracy", "test_accuracy")
COLUMNS = (*HISTORY, "images_per_second", "seconds", "time")
PARAMS = {
    "config": {"model": "resnet34", "training": {"lr": 0.1, "epochs": 3}, "blend": None},
    "interpretation": {"tn_backward": "paper"},
    "commit": "c0ffee+changes",
    "versions": {"torch": "2.9"},
    "hardware": {"cpu": "a cpu", "cores": 2},
}


def row(epoch, begin=1000.0, loss=None):
    values = (epoch, 0.1, loss or 2.0 / epoch, 1.9 / epoch, 0.5, (40 + epoch) / 100, 900.0, 10.0)
    return dict(zip(COLUMNS, (*values, begin + 10 * epoch), strict=True))


def training_record(begin=1000.0, sha="a" * 64):
    metrics = {"accuracy": 0.43, "accuracy_best": 0.43, "loss": 0.7, "parameters": 21_000_000}
    return {
        "schema": SCHEMA,
        "stage": "train",
        **identity("demo", CELL),
        "metrics": {**metrics, "energy_joules": None, "duration_seconds": 30.0},
        **PARAMS,
        "dataset_fingerprint": "f" * 64,
        "model_sha256": sha,
        "started": begin,
    }


def attack_record(epsilon, sha="a" * 64, started=2000.0):
    metrics = {"clean_accuracy": 0.43, "robust_accuracy": 0.2, "last_accuracy": 0.1}
    curve = {"worst_accuracy": 0.05, "curve": [0.3, 0.1], "duration_seconds": 4.0}
    return {
        "schema": SCHEMA,
        "stage": "attack",
        **identity("demo", CELL),
        "epsilon": epsilon,
        "metrics": {**metrics, **curve},
        "model_sha256": sha,
        "started": started,
    }


class Study:
    """A study's folder with the files of one cell."""

    def __init__(self, folder):
        self.folder = folder / "demo"
        self.train = self.folder / "train" / CELL.path
        self.train.mkdir(parents=True)

    def journal(self, epochs, start=1000.0, params=PARAMS, end=None):
        log = journal.Journal(self.train, params)
        log.start = log.created = start
        for epoch in epochs:
            log.log_epoch(row(epoch, start))
        if end:
            journal.append(log.path, {"end": end, "time": 5.0})
        return log

    def record(self, epochs=3, begin=1000.0, sha="a" * 64, **changes):
        write_json(self.train / "record.json", training_record(begin, sha))
        with (self.train / "history.csv").open("w", newline="") as file:
            rows = csv.DictWriter(file, HISTORY, extrasaction="ignore")
            rows.writeheader()
            rows.writerows(row(epoch, begin) | changes for epoch in range(1, epochs + 1))

    def attack(self, epsilon, **options):
        path = self.folder / "attack" / CELL.path / f"eps{epsilon:g}.json"
        write_json(path, attack_record(epsilon, **options))

    def view(self):
        return read_cell(self.folder, "demo", CELL)


@pytest.fixture
def study(tmp_path):
    return Study(tmp_path)


def values(view, key):
    return [(point.step, point.value) for point in view.points if point.key == key]


# Addresses


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("http://host:5000", "http://host:5000"),
        ("http://user:secret@host:5000/x", "http://***@host:5000/x"),
        ("https://user@host", "https://***@host"),
        ("https://host/x?token=secret#y", "https://host/x"),
        ("postgresql+psycopg://u:p%40ss@db/mlflow", "postgresql+psycopg://***@db/mlflow"),
        ("http://u:p@ss@host/", "http://***@host/"),
        ("u:secret@host", "***@host"),
        ("sqlite:///results/mlflow.db", "sqlite:///results/mlflow.db"),
    ],
)
def test_credentials_are_masked(uri, shown):
    assert address.mask_uri(uri) == shown


@pytest.mark.parametrize("password", ["secret", "p%40ss", "a:b"])
def test_no_credential_is_left_in_a_message(password):
    uri = f"http://user:{password}@host:5000"
    message = f"cannot\n connect to {uri} as user with {password} or p@ss"
    masked = address.mask_text(message, uri)
    assert password not in masked
    assert "\n" not in masked
    assert masked.startswith("cannot connect to http://***@host:5000")
    assert ("p@ss" in masked) == (password != "p%40ss")


def test_a_relative_store_is_resolved_against_the_root(tmp_path, monkeypatch):
    assert address.resolve_uri("sqlite:///results/m.db", tmp_path) == (
        f"sqlite:///{tmp_path}/results/m.db"
    )
    monkeypatch.chdir(tmp_path)
    assert address.resolve_uri("sqlite:///m.db") == f"sqlite:///{tmp_path}/m.db"
    assert address.resolve_uri("sqlite:////data/m.db") == "sqlite:////data/m.db"
    assert address.resolve_uri("https://u:p@host") == "https://u:p@host"


@pytest.mark.parametrize(
    "uri", ["./mlruns", "file:///x/y", "", "sqlite://", "sqlite:///:memory:", "ftp://u:secret@x"]
)
def test_a_store_that_mlflow_refuses_is_a_user_error(uri):
    with pytest.raises(UserError, match="tracking_uri") as error:
        address.resolve_uri(uri)
    assert "secret" not in str(error.value)


# The journal


def test_a_journal_is_read_as_it_was_written(study):
    log = study.journal([1, 2])
    log.end("FAILED", 5.0)
    found = journal.read(study.train)
    assert (found.start, found.end, list(found.rows)) == (1000.0, "FAILED", [1, 2])
    assert found.rows[2] == row(2)
    assert found.params["training.lr"] == "0.1"


def test_a_resumed_training_keeps_its_start_and_repeats_no_epoch(study):
    study.journal([1, 2], end="KILLED")
    log = study.journal([], start=9000.0)
    assert log.resumed
    assert not log.epoch(row(2, 9000.0))
    assert log.epoch(row(3, 9000.0))
    found = journal.read(study.train)
    assert (found.start, found.end) == (1000.0, None)
    assert [item["time"] for item in found.rows.values()] == [1010.0, 1020.0, 9030.0]


def test_another_machine_resumes_but_another_config_starts_over(study):
    study.journal([1])
    moved = PARAMS | {"hardware": {"cpu": "another"}, "commit": "later"}
    assert study.journal([], params=moved).resumed
    assert journal.read(study.train).params["hardware.cpu"] == "another"
    changed = PARAMS | {"config": {"model": "resnet34", "training": {"lr": 0.2}}}
    assert not study.journal([], params=changed).resumed
    assert not journal.read(study.train).rows


def test_a_finished_training_done_again_starts_over(study):
    study.journal([1, 2], end="FINISHED")
    assert not study.journal([], start=9000.0).resumed
    assert journal.read(study.train).start == 9000.0


@given(cut=st.integers(min_value=0))
def test_a_torn_journal_loses_at_most_its_last_line(tmp_path_factory, cut):
    study = Study(tmp_path_factory.mktemp("torn"))
    study.journal([1, 2, 3])
    path = study.train / journal.NAME
    data = path.read_bytes()
    whole = data[: cut % len(data)]
    path.write_bytes(whole)
    journal.append(path, row(9))
    lines = whole.count(b"\n")  # the head and the epochs that are whole
    found = journal.read(study.train)
    if lines:
        assert list(found.rows)[: lines - 1] == list(range(1, lines))
        assert 9 in found.rows
    else:
        assert found is None or whole.endswith(b"}")


@given(st.binary(max_size=200))
def test_any_bytes_can_be_read_as_a_journal(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("noise") / journal.NAME
    path.write_bytes(data)
    journal.read(path.parent)


# What is read from a cell's files


def test_nothing_is_shown_of_a_cell_that_has_not_begun(study):
    assert study.view() is None


def test_a_training_that_runs_is_shown_from_its_journal(study):
    study.journal([1, 2])
    view = study.view()
    assert (view.status, view.start, view.end) == ("RUNNING", 1_000_000, None)
    assert values(view, "accuracy") == [(1, 0.41), (2, 0.42)]
    assert values(view, "loss") == [(1, 2.0), (2, 1.0)]
    assert {point.timestamp for point in view.points if point.step == 2} == {1_020_000}
    assert not view.artifacts
    assert view.params["training.epochs"] == "3"
    assert view.tags["mlflow.source.git.commit"] == "c0ffee"


def test_a_cell_without_its_journal_lacks_only_speeds(study):
    study.journal([1, 2, 3], end="FINISHED")
    study.record()
    study.attack(0.1)
    whole = study.view()
    (study.train / journal.NAME).unlink()
    view = study.view()
    speeds = ("images_per_second", "epoch_seconds")
    assert set(view.points) == {point for point in whole.points if point.key not in speeds}
    assert view == replace(whole, points=view.points)


def test_a_finished_cell_has_summary_dataset_and_files(study):
    study.record()
    study.attack(0.1)
    view = study.view()
    assert (view.status, view.start, view.end) == ("FINISHED", 1_000_000, 1_030_000)
    assert values(view, "summary/parameters") == [(3, 21e6)]
    assert not values(view, "summary/energy_joules")
    assert view.dataset == ("c10", "f" * 64)
    names = [(where, path.name) for where, path in view.artifacts]
    assert names == [("", "history.csv"), ("", "record.json"), ("attack", "eps0.1.json")]
    assert view.tags["model_sha256"] == "a" * 64


def test_attacks_continue_the_run_of_their_model_only(study):
    study.record()
    study.attack(0.1)
    study.attack(0.01, sha="b" * 64)
    view = study.view()
    assert values(view, "robust/eps0.1") == [(0, 0.2)]
    assert values(view, "robust_last/eps0.1") == [(0, 0.1)]
    assert values(view, "robust_worst/eps0.1") == [(0, 0.05)]
    assert values(view, "robust_curve/eps0.1") == [(1, 0.3), (2, 0.1)]
    assert values(view, "clean_accuracy") == [(0, 0.43)]
    times = [point.timestamp for point in view.points if point.key == "robust_curve/eps0.1"]
    assert times == [2_002_000, 2_004_000]
    assert not values(view, "robust/eps0.01")


def test_two_attacks_give_one_clean_accuracy(study):
    study.record()
    study.attack(0.1)
    study.attack(0.01, started=3000.0)
    assert values(study.view(), "clean_accuracy") == [(0, 0.43)]


def test_the_audit_is_shown_in_numbers_and_as_a_tag(study):
    study.record()
    record = attack_record(0.1) | {"stage": "audit", "badge": "sound"}
    record["metrics"] = {"exact": {"eps0.1": 0.2}, "indicators": ["x"], "restarts": 3}
    write_json(study.folder / "audit" / CELL.path / "audit.json", record)
    view = study.view()
    assert values(view, "audit/exact/eps0.1") == [(0, 0.2)]
    assert values(view, "audit/restarts") == [(0, 3.0)]
    assert view.tags["audit"] == "sound"


def test_a_training_done_again_hides_the_old_record(study):
    study.record()
    study.attack(0.1)
    study.journal([1], start=5000.0)
    view = study.view()
    assert (view.status, view.start) == ("RUNNING", 5_000_000)
    assert values(view, "accuracy") == [(1, 0.41)]
    assert not values(view, "robust/eps0.1")


def test_a_training_killed_after_its_record_is_finished(study):
    study.journal([1, 2, 3])  # no end was written
    study.record()
    assert study.view().status == "FINISHED"


def test_a_training_that_was_resumed_keeps_the_times_that_were_sent(study):
    study.journal([1, 2], end="KILLED")
    study.journal([2, 3], start=7000.0, end="FINISHED")
    study.record()
    view = study.view()
    times = [point.timestamp for point in view.points if point.key == "loss"]
    assert times == [1_010_000, 1_020_000, 7_030_000]
    assert (view.start, view.end) == (1_000_000, 7_030_000)


def test_epochs_that_the_journal_lacks_are_taken_from_the_history(study):
    study.journal([2], start=1005.0, end="FINISHED")  # resumed, and lost before
    study.record()
    assert values(study.view(), "loss") == [(1, 2.0), (2, 1.0), (3, 2 / 3)]


def test_a_journal_that_disagrees_with_the_history_is_of_another_training(study):
    study.journal([1, 2, 3], start=500.0, end="FINISHED")
    study.record(loss=0.25)
    view = study.view()
    assert values(view, "loss") == [(1, 0.25), (2, 0.25), (3, 0.25)]
    assert view.start == 1_000_000
    assert not values(view, "images_per_second")


def test_numbers_that_are_none_are_left_out(study):
    log = study.journal([])
    log.epoch(row(1) | {"loss": float("nan"), "lr": float("inf"), "soft_cross_entropy": None})
    view = study.view()
    assert not values(view, "loss") + values(view, "lr") + values(view, "soft_cross_entropy")
    assert values(view, "accuracy")


def test_system_samples_of_an_earlier_training_are_left_out(study):
    study.journal([1], start=1000.0)
    for step, time_ in enumerate([900.0, 1005.0]):
        line = {"time": time_, "step": step, "system": {"cpu_utilization_percentage": 50.0}}
        journal.append(study.train / "system.jsonl", line)
    assert values(study.view(), "system/cpu_utilization_percentage") == [(1, 50.0)]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda study: (study.train / "record.json").write_text("{"),
        lambda study: (study.train / "history.csv").write_text("epoch,loss\none,2\n"),
        lambda study: (study.train / "history.csv").write_text("nothing\n1\n"),
        lambda study: write_json(study.train / "record.json", _without("started")),
        lambda study: write_json(study.train / "record.json", training_record() | {"seed": 7}),
        lambda study: study.attack(0.1, started="yesterday"),
    ],
)
def test_a_broken_record_is_named_in_one_line(study, spoil):
    study.record()
    spoil(study)
    with pytest.raises(UserError, match=r"record|history|seed0") as error:
        study.view()
    assert "\n" not in str(error.value)


def _without(key):
    return {name: value for name, value in training_record().items() if name != key}


def test_names_read_well():
    assert run_name(CELL) == "c10 · resnet34 · TN & FDT · seed 0"
    assert (
        run_name(Cell("digits", "wrn10_1", "vanilla", 3)) == "digits · wrn10_1 · vanilla · seed 3"
    )


def test_settings_are_flattened_the_same_from_a_caller_and_from_a_record():
    nested = flatten_params(PARAMS)
    flat = {"model": "resnet34", "training.lr": 0.1, "training.epochs": 3, "blend": None}
    flat |= {"interpretation.tn_backward": "paper", "commit": "c0ffee+changes"}
    flat |= {"versions.torch": "2.9", "hardware.cpu": "a cpu", "hardware.cores": 2}
    assert flatten_params(flat) == nested
    assert flatten_params(json.loads(json.dumps(PARAMS))) == nested
    assert flatten({"a b": {"c=d": [1, 2]}, "long": "x" * 9000}) == {
        "a b.c_d": "[1, 2]",
        "long": "x" * 6000,
    }


def test_times_are_milliseconds():
    assert millis(1.2345) == 1234
    assert millis("1970-01-01T00:00:02+00:00") == 2000


# When a run must be replaced


def known(view, **changes):
    stored = {(point.key, point.step, point.timestamp): point.value for point in view.points}
    run = Known(
        "id", view.start, "RUNNING", None, dict(view.params), dict(view.tags), stored, set()
    )
    return replace(run, **changes)


def test_a_run_is_replaced_only_if_it_holds_what_the_disk_does_not(study):
    study.journal([1, 2, 3], end="FINISHED")
    study.record()
    view = study.view()
    fewer = dict(list(known(view).points.items())[:5])
    point = view.points[0]
    place = (point.key, point.step, point.timestamp)
    for good in (
        known(view),
        known(view, points=fewer, params={}, tags={}),
        known(view, points={("system/cpu", 1, 5): 3.0}),
    ):
        assert not contradicts(view, good)
    for bad in (
        known(view, start=view.start + 1),
        known(view, params={"training.lr": "0.3"}),
        known(view, tags={"model_sha256": "b" * 64}),
        known(view, points={("loss", 99, 5): 3.0}),
        known(view, points={place: point.value + 1e-3}),
    ):
        assert contradicts(view, bad)
    assert not contradicts(replace(view, key=PARENT), known(view, start=0))


def test_chunks_hold_everything_once():
    assert list(chunks(range(5), 2)) == [[0, 1], [2, 3], [4]]
    assert list(chunks([], 2)) == []


def test_the_digest_tells_views_apart(study):
    study.record()
    view = study.view()
    others = [
        replace(view, points=view.points[1:]),
        replace(view, params=view.params | {"x": "1"}),
        replace(view, tags=view.tags | {"x": "1"}),
        replace(view, end=1),
    ]
    digests = {item.digest() for item in [view, *others]}
    assert len(digests) == 5
    before = view.digest()
    with (study.train / "record.json").open("a") as file:
        file.write("\n")
    assert study.view().digest() != before


def test_a_view_with_points_is_hashable_text():
    assert RunView(key="x", name="x", start=0, points=(Point("a", 1, 2, 0.5),)).digest()


# The tracker in a training


class Recorder:
    """In the place of the child process."""

    made: list = []  # noqa: RUF012

    def __init__(self, uri, study, cell, folder, *, trains, nice):
        self.arguments, self.closed = (uri, study, cell, folder, trains), None
        self.made.append(self)

    def close(self, seconds):
        self.closed = seconds


@pytest.fixture
def children(monkeypatch):
    monkeypatch.setattr(Recorder, "made", [])
    monkeypatch.setattr(live, "Child", Recorder)
    return Recorder.made


def tracker(study, uri="sqlite:////x/m.db", **options):
    tags = {"dataset_fingerprint": "f"}
    return CellTracker(uri, "demo", CELL, study.train, params=PARAMS, tags=tags, **options)


def test_a_tracker_writes_the_journal_and_starts_one_child(study, children):
    with tracker(study) as tracking:
        for epoch in (1, 2):
            tracking.log_epoch(row(epoch))
    (child,) = children
    assert child.arguments == ("sqlite:////x/m.db", "demo", CELL, study.folder, True)
    assert child.closed < 0.1
    found = journal.read(study.train)
    assert (list(found.rows), found.end) == ([1, 2], "FINISHED")
    assert found.tags == {"dataset_fingerprint": "f"}


def test_a_cell_found_done_is_not_touched(study, children):
    study.journal([1], end="FINISHED")
    before = (study.train / journal.NAME).read_bytes()
    with tracker(study):
        pass
    assert (study.train / journal.NAME).read_bytes() == before
    assert not children


def test_no_address_tracks_nothing(study, children):
    with tracker(study, uri=None) as tracking:
        tracking.log_epoch(row(1))
    assert not children
    assert not list(study.train.iterdir())


class Stopped(Exception):  # noqa: N818
    pass


@pytest.mark.parametrize(
    ("error", "status"),
    [(ValueError, "FAILED"), (KeyboardInterrupt, "KILLED"), (Stopped, "KILLED")],
)
def test_a_training_that_does_not_finish_says_so(study, children, error, status):
    def train():
        with tracker(study, stops=(Stopped,)) as tracking:
            tracking.log_epoch(row(1))
            raise error

    with pytest.raises(error):
        train()
    assert journal.read(study.train).end == status


def test_a_full_disk_is_one_warning(study, children, monkeypatch, caplog):
    def full(*args):
        raise OSError(errno.ENOSPC, "No space left on device")

    with tracker(study) as tracking:
        tracking.start()
        monkeypatch.setattr(journal.os, "write", full)
        for epoch in (1, 2, 3):
            tracking.log_epoch(row(epoch))
        monkeypatch.undo()
        tracking.log_epoch(row(4))
    assert len(caplog.messages) == 1
    assert "No space left" in caplog.text
    assert list(journal.read(study.train).rows) == [4]


def test_a_process_that_cannot_start_is_one_warning(study, monkeypatch, caplog):
    def refuse(*args, **options):
        raise OSError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(live.subprocess, "Popen", refuse)
    with tracker(study) as tracking:
        for epoch in (1, 2):
            tracking.log_epoch(row(epoch))
    live.log_attack("sqlite:////x/m.db", "demo", CELL, study.folder / "attack" / CELL.path)
    assert len(caplog.messages) == 2
    assert list(journal.read(study.train).rows) == [1, 2]


def test_an_epoch_without_a_time_gets_one(study, children):
    before = time.time()
    with tracker(study) as tracking:
        tracking.log_epoch({"epoch": 1, "loss": 0.5})
    assert before <= journal.read(study.train).rows[1]["time"] <= time.time()


@pytest.mark.parametrize(("hours", "seconds"), [(0.1, 0.9), (100, 5.0)])
def test_the_last_send_may_take_a_quarter_percent_of_the_training(study, children, hours, seconds):
    tracking = tracker(study)
    tracking.created -= 3600 * hours
    tracking.log_epoch(row(1))
    tracking.close()
    assert children[0].closed == pytest.approx(seconds, rel=0.05)


def test_importing_tracking_imports_neither_mlflow_nor_torch():
    code = "import sys, tnfdt.tracking; print({'mlflow', 'torch', 'pandas'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


@pytest.mark.parametrize("call", ["run_ids('http://x', 'demo')", "track(Path(), '.', 'http://x')"])
def test_telemetry_is_off_before_mlflow_is_imported(tmp_path, call):
    code = f"""
import os, sys
from pathlib import Path
from tnfdt.tracking import run_ids, track

class Spy:
    def find_spec(self, name, *args):
        if name == "mlflow":
            sys.exit(os.environ.get("MLFLOW_DISABLE_TELEMETRY"))

sys.meta_path.insert(0, Spy())
{call}
"""
    env = {key: os.environ[key] for key in os.environ if not key.startswith("MLFLOW")}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True
    )
    assert done.stderr.strip() == "true"


# The embedded store and its page


def store_file(path, version):
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE experiments (name TEXT, experiment_id INTEGER)")
        database.execute("INSERT INTO experiments VALUES ('Default', 0), ('tnfdt/demo', 3)")
        database.execute(f"PRAGMA user_version = {version}")
        database.commit()


def test_a_store_that_is_ready_is_left_alone_and_quickly(tmp_path, monkeypatch):
    path = tmp_path / "m.db"
    store_file(path, embedded.stamp())
    monkeypatch.setattr(embedded.subprocess, "run", None)  # a call would raise
    begin = time.perf_counter()
    embedded.init_store(f"sqlite:///{path}")
    assert time.perf_counter() - begin < 0.1
    embedded.init_store("http://nobody:5000")


@pytest.mark.parametrize("content", [None, b""])
def test_a_store_that_is_not_ready_is_made_by_one_child(tmp_path, monkeypatch, caplog, content):
    path, calls = tmp_path / "new" / "m.db", []

    def make(command, **options):
        calls.append(options["input"])
        path.unlink(missing_ok=True)
        store_file(path, embedded.stamp())

    if content is not None:
        path.parent.mkdir()
        path.write_bytes(content)
    monkeypatch.setattr(embedded.subprocess, "run", make)
    for _ in range(2):
        embedded.init_store(f"sqlite:///{path}")
    assert calls == [f"sqlite:///{path}"]
    assert not caplog.messages


def test_a_store_that_cannot_be_made_is_one_warning(tmp_path, monkeypatch, caplog):
    def fail(command, **options):
        raise subprocess.CalledProcessError(1, command, stderr="DatabaseError: disk\n is full")

    monkeypatch.setattr(embedded.subprocess, "run", fail)
    embedded.init_store(f"sqlite:///{tmp_path}/m.db")
    assert len(caplog.messages) == 1
    assert "disk is full" in caplog.text
    (tmp_path / "file").touch()
    embedded.init_store(f"sqlite:///{tmp_path}/file/m.db")
    assert len(caplog.messages) == 2
    with pytest.raises(UserError, match=r"m\.db is not a usable MLflow store"):
        embedded.require_store(f"sqlite:///{tmp_path}/m.db")


def test_a_store_that_is_locked_is_in_use_and_so_is_ready(tmp_path):
    store_file(tmp_path / "m.db", embedded.stamp())
    with closing(sqlite3.connect(tmp_path / "m.db", isolation_level=None)) as database:
        database.execute("BEGIN EXCLUSIVE")
        assert embedded.is_ready(tmp_path / "m.db")


def test_a_store_of_another_mlflow_is_not_ready(tmp_path):
    store_file(tmp_path / "m.db", embedded.stamp() + 1)
    assert not embedded.is_ready(tmp_path / "m.db")
    assert not embedded.is_ready(tmp_path / "none.db")


def test_the_server_listens_on_this_machine_only(tmp_path, monkeypatch, capsys):
    path, became = tmp_path / "m.db", []
    store_file(path, embedded.stamp())
    monkeypatch.setattr(embedded.os, "execve", lambda *args: became.append(args))
    monkeypatch.chdir(tmp_path)
    embedded.ui("sqlite:///m.db", 5123)
    ((_, command, environment),) = became
    assert command[command.index("--host") + 1] == "127.0.0.1"
    assert command[command.index("--backend-store-uri") + 1] == f"sqlite:///{path}"
    assert environment["MLFLOW_DISABLE_TELEMETRY"] == "true"
    link = "http://127.0.0.1:5123/#/experiments/3/runs?viewStateShareKey=tnfdt"
    assert capsys.readouterr().out.startswith(f"tnfdt/demo: {link}")
    with pytest.raises(UserError, match=r"open http://\*\*\*@host:5000"):
        embedded.ui("http://me:secret@host:5000", 5123)


def test_the_page_shows_robust_accuracy_by_falling_epsilon():
    keys = ["robust/eps0.001", "loss", "robust/eps0.1", "robust_curve/eps0.1", "robust/eps1e-05"]
    shown = page.columns(("accuracy", "robust/eps0.01"), keys)
    robust = [f"robust/eps{epsilon}" for epsilon in ("0.1", "0.01", "0.001", "1e-05")]
    assert shown == ("accuracy", *robust)
    assert page.columns_of(dict([page.view_tag(shown)])) == shown
    assert page.columns_of({}) == page.columns_of({"mlflow.sharedViewState.tnfdt": "x"}) == ()


# The machine


class FakeNvml(SimpleNamespace):
    NVMLError = RuntimeError

    def __init__(self, users):
        super().__init__(users=users)

    def nvmlDeviceGetCount(self):  # noqa: N802
        return len(self.users)

    def nvmlDeviceGetHandleByIndex(self, index):  # noqa: N802
        return index

    def nvmlDeviceGetComputeRunningProcesses(self, gpu):  # noqa: N802
        return [SimpleNamespace(pid=pid) for pid in self.users[gpu]]

    def nvmlDeviceGetMemoryInfo(self, gpu):  # noqa: N802
        return SimpleNamespace(used=2e9)

    def nvmlDeviceGetUtilizationRates(self, gpu):  # noqa: N802
        return SimpleNamespace(gpu=80 + gpu)

    def nvmlDeviceGetPowerUsage(self, gpu):  # noqa: N802
        return 250_000


def samples(folder):
    return journal.read_lines(folder / "system.jsonl")


@pytest.mark.parametrize(("users", "seen"), [([[1], [42]], {1}), ([[1], []], {0, 1}), ([], set())])
def test_a_sample_has_the_gpus_of_the_training(tmp_path, users, seen):
    sampler = Sampler(tmp_path, 42)
    sampler.nvml = FakeNvml(users)
    sampler.sample(100.0)
    (line,) = samples(tmp_path)
    assert {i for i in range(2) if f"gpu_{i}_utilization_percentage" in line["system"]} == seen
    assert line["system"]["system_memory_usage_megabytes"] > 0
    assert 1 not in seen or line["system"]["gpu_1_utilization_percentage"] == 81


def test_samples_grow_rare_and_go_on_after_a_resume(tmp_path):
    sampler = Sampler(tmp_path, os.getpid())
    for second in range(0, 36_000, 5):
        sampler.sample(1000.0 + second)
    taken = samples(tmp_path)
    assert 200 < len(taken) < 500
    again = Sampler(tmp_path, os.getpid())
    again.sample(99_000.0)
    assert [line["step"] for line in samples(tmp_path)] == list(range(len(taken) + 1))


def test_run_ids_are_read_beside_the_records(study):
    write_json(study.train / "mlflow.json", {"run_id": "abc"})
    broken = study.folder / "train" / "c10/resnet34/tn/seed1"
    broken.mkdir(parents=True)
    (broken / "mlflow.json").write_text("[]")
    assert recorded_run_ids(study.folder.parent, "demo") == {CELL.path: "abc"}
