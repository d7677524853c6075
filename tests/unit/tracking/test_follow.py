"""What a follower looks at, with a store that only takes notes: what has changed, no more."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from tests.unit.tracking.test_view import Study, training_record
from tnfdt.files.atomic import write_json
from tnfdt.files.locks import exclusive
from tnfdt.study.paths import Cell
from tnfdt.tracking import follow_run, sqlite_store
from tnfdt.tracking.experiment import KnownRun
from tnfdt.tracking.follow import Tracker

CELL = Cell("c10", "resnet34", "tn_fdt", 0)
SEEDS = (CELL, CELL._replace(seed=1))
GROUP = "c10/resnet34/tn_fdt"


class Notes:
    """In the place of MLflow's store."""

    def __init__(self):
        self.sent, self.index, self.lock = [], {}, nullcontext
        self.experiment = SimpleNamespace(experiment_id="7")

    def refresh(self):
        pass

    def show_columns(self):
        pass

    def exists(self, view):
        self.sent.append(f"{view.key}?")
        return view.key

    def bring_in_line(self, view, parent, summary):
        self.sent.append(view.key)
        summary.created += view.key not in self.index
        self.index[view.key] = KnownRun(f"run of {view.key}", None, parent)
        return view.key


@pytest.fixture
def study(tmp_path):
    return Study(tmp_path)


@pytest.fixture
def tracker(study, monkeypatch):
    monkeypatch.setattr(sqlite_store, "import_module", lambda name: None)
    tracker = Tracker(study.folder.parent, "demo", "http://x", {cell: cell for cell in SEEDS})
    tracker.store = Notes()
    return tracker


def sent(tracker, **options):
    tracker.store.sent.clear()
    tracker.sync(**options)
    return tracker.store.sent


def test_only_what_has_changed_is_looked_at(study, tracker):
    assert sent(tracker) == []
    study.journal([1])
    assert sent(tracker) == [f"{GROUP}?", CELL.path]
    assert sent(tracker) == []
    study.journal([2])
    assert sent(tracker) == [f"{GROUP}?", CELL.path]
    for change in (study.record, lambda: study.attack(0.1), lambda: study.attack(0.01)):
        assert sent(tracker) == []
        change()
        assert CELL.path in sent(tracker)


def test_a_training_that_dies_is_noticed_though_no_file_changes(study, tracker):
    with exclusive(study.train / ".lock"):
        study.journal([1])
        assert CELL.path in sent(tracker)
        assert sent(tracker) == []
    assert CELL.path in sent(tracker)
    assert sent(tracker) == []


def test_a_mean_waits_for_the_seeds_of_the_study_but_not_for_ever(study, tracker):
    study.record()
    assert sent(tracker) == [f"{GROUP}?", CELL.path]
    assert sent(tracker, everything=True) == [GROUP, CELL.path, "study"]
    tracker.seeds[GROUP] = 1
    study.attack(0.1)
    assert sent(tracker) == [GROUP, CELL.path]


def other_seed(study, seed, begin, config):
    """Seed 0's training as that of another seed."""
    made = training_record(begin) | {"seed": seed, "config": config}
    folder = study.folder / "train" / CELL._replace(seed=seed).path
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "record.json", made)


def test_a_mean_is_of_what_the_study_plans_and_waits_for_its_recipe(study, tracker, monkeypatch):
    """Three seeds are trained; then the study has other epochs, and two seeds."""
    new, groups = {"epochs": 20}, {}
    keep = tracker.store.bring_in_line
    monkeypatch.setattr(
        tracker.store,
        "bring_in_line",
        lambda view, *rest: (groups.update({view.key: view}), keep(view, *rest))[1],
    )
    for seed in (0, 1, 2):
        other_seed(study, seed, 1000.0, {"epochs": 10})
    tracker.sync()
    assert groups[GROUP].tags["seeds"] == "0 1"  # seed 2 is not of the study
    other_seed(study, 0, 5000.0, new)
    assert f"{GROUP}?" in sent(tracker)  # the old mean stays until all seeds have the new recipe
    assert groups[GROUP].tags["seeds"] == "0 1"
    tracker.sync(everything=True)
    assert groups[GROUP].tags["seeds"] == "0"
    other_seed(study, 1, 5000.0, new)
    assert GROUP in sent(tracker)
    assert groups[GROUP].tags["seeds"] == "0 1"
    assert groups[GROUP].params["epochs"] == "20"


def test_a_reading_that_only_attacks_is_tracked_beside_its_training(study, tracker):
    """In its group and in mlflow.csv, whether or not there is a training of that name."""
    reading = CELL._replace(method="tn_fdt.random_start-true")
    tracker.networks[reading] = CELL
    study.record()
    tracker.sync()
    assert sent(tracker) == []
    study.attack(0.1, reading)
    assert sent(tracker) == [f"{reading.row}?", reading.path]
    assert sent(tracker) == []
    study.attack(0.01, reading)
    assert sent(tracker) == [f"{reading.row}?", reading.path]
    lines = (study.folder / "mlflow.csv").read_text().splitlines()
    assert [line.split(",")[2] for line in lines[1:]] == [CELL.method, reading.method]


def test_mlflow_csv_says_which_run_is_whose(study, tracker):
    study.record()
    (study.folder / "train" / "c10/resnet34/tn/seed0").mkdir(parents=True)  # not begun
    tracker.uri = "http://me:secret@host"
    tracker.sync()
    head, line = (study.folder / "mlflow.csv").read_text().splitlines()
    assert head == "dataset,model,method,seed,run_id,experiment_id,tracking_uri"
    assert line == f"c10,resnet34,tn_fdt,0,run of {CELL.path},7,http://***@host"


def test_a_store_that_fails_is_forgotten_and_all_is_looked_at_again(study, tracker, monkeypatch):
    study.journal([1])
    tracker.sync()
    monkeypatch.setattr(tracker.store, "bring_in_line", None)
    study.journal([2])
    with pytest.raises(TypeError):
        tracker.sync()
    assert tracker.store is None


def test_a_follower_goes_on_whatever_fails_and_says_so_once(tmp_path, monkeypatch, capsys):
    tries = []

    class Stop:
        def wait(self, seconds):
            return len(tries) >= 3

    def fail(tracker, everything=False):
        tries.append(everything)
        if not everything:
            raise ValueError("no answer from http://me:secret@host")

    monkeypatch.setattr("tnfdt.tracking.follow._Stop", Stop)
    monkeypatch.setattr(Tracker, "sync", fail)
    follow_run(tmp_path, "demo", "http://me:secret@host", {})
    assert tries == [False, False, False, True]
    assert capsys.readouterr().err.splitlines() == [
        "tracking: no answer from http://***@host; it is tried again"
    ]
