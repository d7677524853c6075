"""What MLflow should show of a cell, read from its files; when a run must be replaced."""

import csv
import os
from dataclasses import replace
from types import SimpleNamespace

import pytest
from mlflow.entities import Metric, Param, RunData, RunTag

from tnfdt.files import journal
from tnfdt.files.atomic import write_json
from tnfdt.files.locks import exclusive
from tnfdt.files.records import SCHEMA, identity
from tnfdt.study.paths import JOURNAL, Cell
from tnfdt.study.schema import UserError
from tnfdt.tracking.mlflow_run import chunks, contradicts
from tnfdt.tracking.points import Point, millis
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

    def attack(self, epsilon, cell=CELL, **options):
        path = self.folder / "attack" / cell.path / f"eps{epsilon:g}.json"
        write_json(path, attack_record(epsilon, **options) | identity("demo", cell))

    def view(self):
        return read_cell(self.folder, "demo", CELL)


@pytest.fixture
def study(tmp_path):
    return Study(tmp_path)


def values(view, key):
    return [(point.step, point.value) for point in view.points if point.key == key]


# What is read from a cell's files


def test_nothing_is_shown_of_a_cell_that_has_not_begun(study):
    assert study.view() is None


def test_a_training_that_runs_is_shown_from_its_journal(study):
    study.journal([1, 2])
    with exclusive(study.train / ".lock"):
        view = study.view()
    assert (view.status, view.start, view.end) == ("RUNNING", 1_000_000, None)
    assert values(view, "accuracy") == [(1, 0.41), (2, 0.42)]
    assert values(view, "loss") == [(1, 2.0), (2, 1.0)]
    assert {point.timestamp for point in view.points if point.step == 2} == {1_020_000}
    assert not view.artifacts
    assert view.params["training.epochs"] == "3"
    assert view.tags["mlflow.source.git.commit"] == "c0ffee"


def test_a_training_that_nobody_trains_was_killed(study):
    study.journal([1, 2])
    view = study.view()
    assert (view.status, view.end) == ("KILLED", 1_020_000)
    log = study.folder / "logs/train" / f"{CELL.path}.log"
    log.parent.mkdir(parents=True)
    log.touch()  # it writes to its log, on a machine whose locks are not seen here
    assert study.view().status == "RUNNING"
    os.utime(log, (1000, 1000))
    assert study.view().status == "KILLED"


def test_a_cell_without_its_journal_lacks_only_speeds(study):
    study.journal([1, 2, 3], end="FINISHED")
    study.record()
    study.attack(0.1)
    whole = study.view()
    (study.train / JOURNAL).unlink()
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


def test_a_recipe_is_all_that_a_training_depends_on_but_its_seed_and_machine(study):
    def recipe(fingerprint="f" * 64, **config):
        made = training_record() | {"dataset_fingerprint": fingerprint}
        study.record()
        write_json(study.train / "record.json", made | {"config": PARAMS["config"] | config})
        return study.view().recipe

    assert recipe() == recipe(seed=1, precision="bfloat16", compile=True, num_classes=10)
    assert len({recipe(), recipe(training={"epochs": 20}), recipe(fingerprint="e" * 64)}) == 3


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


READING = CELL._replace(method="tn_fdt.random_start-true")


def test_a_reading_that_only_attacks_has_a_run_that_names_its_training(study):
    """With the accuracy of the training and not its curves and costs, which count once."""
    study.record()
    assert read_cell(study.folder, "demo", READING, CELL) is None
    study.attack(0.1, READING)
    study.attack(0.01, READING, sha="b" * 64)  # on the weights of an earlier training
    view = read_cell(study.folder, "demo", READING, CELL)
    assert (view.key, view.status, view.start) == (READING.path, "FINISHED", 1_030_000)
    assert view.tags["trained_as"] == CELL.path
    assert view.tags["mlflow.source.name"] == "tnfdt attack"
    assert values(view, "robust/eps0.1") == [(0, 0.2)]
    assert values(view, "clean_accuracy") == values(view, "accuracy") == [(0, 0.43)]
    assert not [p for p in view.points if p.key == "loss" or p.key.startswith("summary/")]
    assert not values(view, "robust/eps0.01")
    assert {where for where, _ in view.artifacts} == {"attack"}
    assert view.recipe == study.view().recipe


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
    assert (view.status, view.start) == ("KILLED", 5_000_000)
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
    log.log_epoch(row(1) | {"loss": float("nan"), "lr": float("inf"), "soft_cross_entropy": None})
    view = study.view()
    assert not values(view, "loss") + values(view, "lr") + values(view, "soft_cross_entropy")
    assert values(view, "accuracy")


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
    assert nested == {
        "model": "resnet34", "training.lr": "0.1", "training.epochs": "3", "blend": "null",
        "interpretation.tn_backward": "paper", "commit": "c0ffee+changes",
        "versions.torch": "2.9", "hardware.cpu": "a cpu", "hardware.cores": "2",
    }  # fmt: skip
    assert flatten_params(training_record()) == nested
    assert flatten({"a b": {"c=d": [1, 2]}, "long": "x" * 9000}) == {
        "a b.c_d": "[1, 2]",
        "long": "x" * 6000,
    }


def test_times_are_milliseconds():
    assert millis(1.2345) == 1234
    assert millis("1970-01-01T00:00:02+00:00") == 2000


# When a run must be replaced


def known(view, start=None, points=None, params=None, tags=None):
    """A run of MLflow that holds what the view says, but for the changes."""
    last = {point.key: point for point in (view.points if points is None else points)}
    data = RunData(
        metrics=[Metric(p.key, p.value, p.timestamp, p.step) for p in last.values()],
        params=[Param(*item) for item in (view.params if params is None else params).items()],
        tags=[RunTag(*item) for item in (view.tags if tags is None else tags).items()],
    )
    return SimpleNamespace(info=SimpleNamespace(start_time=start or view.start), data=data)


def test_a_run_is_replaced_only_if_it_holds_what_the_disk_does_not(study):
    study.journal([1, 2, 3], end="FINISHED")
    study.record()
    view = study.view()
    point = view.points[0]
    for good in (known(view), known(view, points=[point], params={}, tags={})):
        assert not contradicts(view, good)
    for bad in (
        known(view, start=view.start + 1),
        known(view, params={"training.lr": "0.3"}),
        known(view, params={"unknown": "1"}),
        known(view, tags={"model_sha256": "b" * 64}),
        known(view, points=[point._replace(key="unknown")]),
        known(view, points=[point._replace(value=point.value + 1e-3)]),
        known(view, points=[point._replace(timestamp=point.timestamp + 1)]),  # made again
    ):
        assert contradicts(view, bad)


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
