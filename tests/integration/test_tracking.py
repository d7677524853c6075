"""Tracking with the real MLflow: concurrent processes, a server that dies, a store rebuilt."""

import csv
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing, contextmanager
from pathlib import Path

import psutil
import pytest

from tests.integration.ui_screenshot import open_page, serve
from tnfdt.files.atomic import read_json, write_json
from tnfdt.files.records import SCHEMA, identity
from tnfdt.study.paths import Cell
from tnfdt.study.schema import ROOT, UserError
from tnfdt.tracking import (
    AttackTracker,
    CellTracker,
    init_store,
    recorded_run_ids,
    run_ids,
    track,
)
from tnfdt.tracking.embedded import links

STUDY = "demo"
CELLS = [
    Cell("digits", "wrn10_1", method, seed) for method in ("tn", "tn_fdt") for seed in range(4)
]
HISTORY = ("epoch", "lr", "loss", "soft_cross_entropy", "train_accuracy", "test_accuracy")
COLUMNS = (*HISTORY, "images_per_second", "seconds", "time")
CURVES = 7  # metrics of an epoch
PARAMS = {
    "config": {"training": {"lr": 0.1, "epochs": 3}},
    "interpretation": {"tn_backward": "paper"},
    "commit": "c0ffee",
    "versions": {"torch": "2.9"},
    "hardware": {"cpu": "a cpu"},
}
SOON = 60  # seconds in which two busy cores get anything done


# A training that only pretends, with the files of a real one


def make_row(cell: Cell, epoch: int) -> dict:
    values = (epoch, 0.1, 2 / epoch, 1.9 / epoch, 0.5, 0.9 - 0.1 / epoch - cell.seed / 100, 900.0)
    return dict(zip(COLUMNS, (*values, 0.1, time.time()), strict=True))


def write_result(folder: Path, cell: Cell, rows: list[dict], sha: str = "a") -> None:
    out = folder / "train" / cell.path
    out.mkdir(parents=True, exist_ok=True)
    with (out / "history.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, HISTORY, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    metrics = {"accuracy": rows[-1]["test_accuracy"], "parameters": 77, "duration_seconds": 1.0}
    labels = {"dataset_fingerprint": "f" * 64, "model_sha256": sha * 64}
    begin = {"started": rows[0]["time"]}
    head = {"schema": SCHEMA, "stage": "train", **identity(STUDY, cell)}
    write_json(out / "record.json", {**head, "metrics": metrics, **PARAMS, **labels, **begin})


def write_attack(folder: Path, cell: Cell, epsilon: float, sha: str = "a") -> None:
    curve = [0.9 * 0.95**step for step in range(40)]
    metrics = {"clean_accuracy": 0.9, "robust_accuracy": sum(curve) / 40}
    metrics |= {"last_accuracy": curve[-1], "worst_accuracy": 0.1, "curve": curve}
    head = {"schema": SCHEMA, "stage": "attack", **identity(STUDY, cell), "epsilon": epsilon}
    times = {"started": 1_700_000_000.0, "model_sha256": sha * 64}
    path = folder / "attack" / cell.path / f"eps{epsilon:g}.json"
    write_json(path, {**head, "metrics": metrics | {"duration_seconds": 2.0}, **times})


def make_tracker(uri: str, folder: Path, cell: Cell, flush: float | None = None) -> CellTracker:
    tags = {"dataset_fingerprint": "f" * 64}
    out = folder / "train" / cell.path
    # At the usual priority, as this machine may have other things to do.
    return CellTracker(uri, STUDY, cell, out, params=PARAMS, tags=tags, flush=flush, nice=0)


def train(uri: str, folder: Path, cell: Cell, *, epochs: int, pause: float, flush: float) -> None:
    """Train one cell as `tnfdt train` does; an older history is the checkpoint's."""
    rows = []
    with make_tracker(uri, folder, cell, flush) as tracker:
        tracker.start()
        for epoch in range(1, epochs + 1):
            time.sleep(pause)
            rows.append(make_row(cell, epoch))
            tracker.log_epoch(rows[-1])
        write_result(folder, cell, rows)


def train_elsewhere(uri: str, folder: Path, cell: Cell, **options) -> subprocess.Popen:
    arguments = f"{uri!r}, Path({str(folder)!r}), Cell(*{tuple(cell)!r}), **{options!r}"
    names = "from tests.integration.test_tracking import Cell, Path, train"
    code = f"{names}; train({arguments})"
    return subprocess.Popen([sys.executable, "-c", code], cwd=ROOT)


# What a store holds, asked of SQLite itself


def query(path: Path, sql: str, *args) -> list[tuple]:
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=30)) as database:
        return database.execute(sql, args).fetchall()


def stored(path: Path) -> dict[str, dict]:
    """The active runs by cell: what must be equal in a live and in a rebuilt store."""
    runs = query(
        path,
        "SELECT value, runs.run_uuid, name, status, start_time, end_time FROM runs "
        "JOIN tags ON runs.run_uuid = tags.run_uuid AND key = 'tnfdt.cell' "
        "WHERE lifecycle_stage = 'active' AND value LIKE '%/%'",
    )
    assert len({cell for cell, *_ in runs}) == len(runs), "two runs of one cell"
    return {cell: _contents(path, run_id) | {"facts": facts} for cell, run_id, *facts in runs}


def _contents(path: Path, run_id: str) -> dict:
    own = "FROM {} WHERE run_uuid = ?"
    tags = dict(query(path, f"SELECT key, value {own.format('tags')}", run_id))
    return {
        "parent": tags.pop("mlflow.parentRunId"),
        "tags": tags,
        "params": dict(query(path, f"SELECT key, value {own.format('params')}", run_id)),
        "points": Counter(
            query(path, f"SELECT key, step, timestamp, value {own.format('metrics')}", run_id)
        ),
    }


def comparable(path: Path) -> dict[str, dict]:
    return {
        cell: {key: value for key, value in run.items() if key != "parent"}
        for cell, run in stored(path).items()
    }


def parents(path: Path) -> list[str]:
    sql = (
        "SELECT runs.run_uuid FROM runs JOIN tags ON runs.run_uuid = tags.run_uuid "
        "WHERE lifecycle_stage = 'active' AND key = 'tnfdt.cell' AND value = 'study'"
    )
    return [run_id for (run_id,) in query(path, sql)]


def assert_complete(path: Path, folder: Path, cell: Cell) -> None:
    """Every number of the history is in the cell's run, once, and nothing else is."""
    with (folder / "train" / cell.path / "history.csv").open(newline="") as file:
        rows = [{key: float(text) for key, text in row.items()} for row in csv.DictReader(file)]
    points = stored(path)[cell.path]["points"]
    assert max(points.values()) == 1
    found = Counter((key, step, value) for key, step, _, value in points)
    names = {key: key for key in HISTORY[1:5]} | {"test_accuracy": "accuracy"}
    for row in rows:
        for column, key in names.items():
            assert found[key, int(row["epoch"]), row[column]] == 1, (key, row["epoch"])
    curves = Counter(key for key, *_ in points if key in names.values())
    assert curves == dict.fromkeys(names.values(), len(rows))


def wait_for(condition, seconds=SOON):
    until = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.1)
    return found


def senders_of(pid: int) -> list[psutil.Process]:
    return [child for child in psutil.Process(pid).children() if "sender" in child.cmdline()[-1]]


@pytest.fixture(scope="module")
def empty(tmp_path_factory):
    """An empty store; made once, and copied by the tests that fill one."""
    path = tmp_path_factory.mktemp("empty") / "mlflow.db"
    init_store(f"sqlite:///{path}")
    return path


@pytest.fixture
def place(empty, tmp_path):
    """The address of an empty store, its file, and the folder of a study."""
    path = Path(shutil.copy(empty, tmp_path))
    return f"sqlite:///{path}", path, tmp_path / STUDY


# Eight processes and one fresh store


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    """A study whose eight cells were trained at once; nobody had made the store before."""
    results = tmp_path_factory.mktemp("live")
    uri, folder = f"sqlite:///{results}/mlflow.db", results / STUDY
    options = {"epochs": 3, "pause": 0.2, "flush": 4 * SOON}
    processes = [train_elsewhere(uri, folder, cell, **options) for cell in CELLS]
    assert [process.wait() for process in processes] == [0] * len(CELLS)
    return uri, folder


def test_eight_processes_on_a_fresh_store_lose_nothing(live):
    uri, folder = live
    path = folder.parent / "mlflow.db"
    runs = stored(path)
    assert set(runs) == {cell.path for cell in CELLS}
    for cell in CELLS:
        assert_complete(path, folder, cell)
        assert runs[cell.path]["facts"][1] == "FINISHED"
        assert runs[cell.path]["params"]["training.lr"] == "0.1"
    (parent,) = parents(path)
    assert {run["parent"] for run in runs.values()} == {parent}
    assert query(path, "SELECT count(*) FROM experiments WHERE name = 'tnfdt/demo'") == [(1,)]
    names = {run["facts"][0] for run in runs.values()}
    assert "digits · wrn10_1 · TN & FDT · seed 3" in names
    assert recorded_run_ids(folder.parent, STUDY) == run_ids(uri, STUDY)


def test_a_rebuilt_store_equals_the_live_one_and_tracking_again_changes_nothing(live, empty):
    uri, folder = live
    results = folder.parent
    shutil.copy(empty, results / "rebuilt.db")
    for cell in CELLS[:2]:
        write_attack(folder, cell, 0.1)
    attack = folder / "attack" / CELLS[0].path
    with AttackTracker(uri, STUDY, CELLS[0], attack, flush=SOON, nice=0):
        write_attack(folder, CELLS[0], 0.01)
    attacked = stored(results / "mlflow.db")[CELLS[0].path]["points"]
    assert sum(key == "robust_curve/eps0.01" for key, *_ in attacked) == 40
    (folder / "tables").mkdir()
    (folder / "tables/claims.md").write_text("**reproduced**")

    assert not track(results, STUDY, uri).created
    before = (results / "mlflow.db").read_bytes()
    again = track(results, STUDY, uri)
    assert (again.cells, again.points, again.created, again.updated) == (8, 0, 0, 0)
    assert (results / "mlflow.db").read_bytes() == before

    rebuilt = track(results, STUDY, f"sqlite:///{results}/rebuilt.db")
    assert (rebuilt.created, rebuilt.problems) == (8, [])
    assert comparable(results / "rebuilt.db") == comparable(results / "mlflow.db")
    (parent,) = parents(results / "rebuilt.db")
    files = [path.name for path in (results / "rebuilt-artifacts" / parent).rglob("*.*")]
    assert files == ["claims.md"]
    run = run_ids(f"sqlite:///{results}/rebuilt.db", STUDY)[CELLS[0].path]
    files = {path.name for path in (results / "rebuilt-artifacts" / run).rglob("*.*")}
    assert files == {"record.json", "history.csv", "history.png", "eps0.1.json", "eps0.01.json"}


def test_a_cell_trained_again_replaces_its_run_and_duplicates_go(live):
    from mlflow import MlflowClient

    uri, folder = live
    path, cell = folder.parent / "mlflow.db", CELLS[2]
    client = MlflowClient(uri)
    old = run_ids(uri, STUDY)
    experiment = client.get_run(old[cell.path]).info.experiment_id
    for key in (CELLS[3].path, "study"):
        later = int(1000 * time.time()) + 10**6
        client.create_run(experiment, later, {"tnfdt.cell": key}, "from a race")
    write_result(folder, cell, [make_row(cell, epoch) for epoch in (1, 2)], sha="b")
    (folder / "train" / cell.path / "journal.jsonl").unlink()
    spoiled = folder / "train" / CELLS[7].path / "record.json"
    spoiled.write_text("{")

    summary = track(folder.parent, STUDY, uri)

    assert (summary.superseded, summary.created) == (1, 0)
    assert len(summary.problems) == 1
    assert str(spoiled) in summary.problems[0]
    new = run_ids(uri, STUDY)
    assert [key for key in old if old[key] != new[key]] == [cell.path]
    assert client.get_run(old[cell.path]).info.lifecycle_stage == "deleted"
    assert_complete(path, folder, cell)
    assert len(stored(path)) == 8
    assert len(parents(path)) == 1


# Trainings that are killed, stores that do not answer


def test_a_killed_training_takes_its_child_along_and_goes_on_in_the_same_run(place):
    (uri, path, folder), cell = place, CELLS[0]
    process = train_elsewhere(uri, folder, cell, epochs=10_000, pause=0.1, flush=1)
    (sender,) = wait_for(lambda: senders_of(process.pid))
    sidecar = folder / "train" / cell.path / "mlflow.json"
    wait_for(sidecar.exists)
    process.send_signal(signal.SIGKILL)
    process.wait()
    wait_for(lambda: not sender.is_running(), seconds=10)
    run = stored(path)[cell.path]
    assert run["facts"][1] == "KILLED"

    with (folder / "train" / cell.path / "journal.jsonl").open("a") as file:
        file.write('{"epoch": 3, "lo')  # torn by the kill
    done = max(step for key, step, *_ in run["points"] if key == "loss")
    train(uri, folder, cell, epochs=done + 5, pause=0, flush=SOON)
    again = stored(path)[cell.path]
    assert again["facts"][1] == "FINISHED"
    assert run["points"].keys() <= again["points"].keys()
    steps = Counter(step for key, step, *_ in again["points"] if key == "loss")
    assert steps == Counter(range(1, done + 6))
    assert read_json(sidecar)["run_id"] == run_ids(uri, STUDY)[cell.path]


@contextmanager
def locked(path: Path):
    """Another process holds the store for itself."""
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("BEGIN EXCLUSIVE")
        yield f"sqlite:///{path}"
        database.execute("ROLLBACK")


@contextmanager
def silent(path: Path):
    """A server that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize("stuck", [locked, silent])
def test_a_store_that_does_not_answer_delays_nothing(place, capfd, stuck):
    (uri, path, folder), cell = place, CELLS[1]
    with stuck(path) as broken, make_tracker(broken, folder, cell) as tracker:
        tracker.log_epoch(make_row(cell, 1))
        sender = psutil.Process(tracker.child.process.pid)
        wait_for(lambda: sender.memory_info().rss > 150e6)  # it has imported mlflow
        time.sleep(1)  # and waits for the store
        family, begin = [sender, *sender.children(recursive=True)], time.monotonic()
        for epoch in (2, 3):
            tracker.log_epoch(make_row(cell, epoch))
        assert time.monotonic() - begin < 0.5
        tracker.close()
        assert time.monotonic() - begin < 1.5
        assert not [process for process in family if process.is_running()]
    assert len(capfd.readouterr().err.splitlines()) <= 1
    track(folder.parent, STUDY, uri)
    steps = [step for key, step, *_ in stored(path)[cell.path]["points"] if "/" not in key]
    assert Counter(steps) == {1: CURVES, 2: CURVES, 3: CURVES}


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


class Outage:
    """A training whose server is killed in its middle and comes back when it is over."""

    def __init__(self, database: Path, results: Path) -> None:
        self.database, self.results, self.folder = database, results, results / STUDY
        self.port, self.cell = free_port(), CELLS[4]
        self.uri = f"http://me:secret@127.0.0.1:{self.port}"
        self.rows: list[dict] = []
        self.slowest = self.closing = 0.0

    def train(self) -> None:
        with make_tracker(self.uri, self.folder, self.cell) as tracker:
            with serve(self.database, self.port):
                while not query(self.database, "SELECT 1 FROM metrics WHERE key = 'loss' LIMIT 1"):
                    self.epoch(tracker)
            for _ in range(160):  # for a send to fail, and more points than one batch takes
                self.epoch(tracker)
            write_result(self.folder, self.cell, self.rows)
            begin = time.monotonic()
        self.closing = time.monotonic() - begin

    def epoch(self, tracker: CellTracker) -> None:
        time.sleep(0.05)
        self.rows.append(make_row(self.cell, len(self.rows) + 1))
        begin = time.monotonic()
        tracker.log_epoch(self.rows[-1])
        self.slowest = max(self.slowest, time.monotonic() - begin)


@pytest.fixture(scope="module")
def outage(empty, tmp_path_factory):
    results = tmp_path_factory.mktemp("outage")
    found = Outage(Path(shutil.copy(empty, results)), results)
    output = results / "stderr"
    with output.open("w") as file, redirected(2, file.fileno()):
        found.train()
    found.warning = output.read_text()
    for cell in CELLS[:3]:
        write_result(found.folder, cell, [make_row(cell, 1)])
        write_attack(found.folder, cell, 0.1)
    with serve(found.database, found.port):
        track(results, STUDY, found.uri)
        yield found


@contextmanager
def redirected(descriptor: int, target: int):
    """Let a descriptor, which child processes inherit, point elsewhere for a while."""
    kept = os.dup(descriptor)
    os.dup2(target, descriptor)
    try:
        yield
    finally:
        os.dup2(kept, descriptor)
        os.close(kept)


def test_a_server_that_dies_in_a_training_costs_no_time(outage):
    assert outage.slowest < 0.5
    assert outage.closing < 5.5
    assert outage.warning.count("\n") <= 1, outage.warning  # none if the end came first
    assert not outage.warning or "tracking: http://***@127.0.0.1" in outage.warning
    assert "secret" not in outage.warning


def test_a_server_that_dies_in_a_training_costs_no_number(outage):
    assert_complete(outage.database, outage.folder, outage.cell)
    assert set(stored(outage.database)) == {cell.path for cell in (*CELLS[:3], outage.cell)}
    assert len(parents(outage.database)) == 1


def test_no_credential_reaches_the_log_or_the_disk(outage):
    assert "secret" not in outage.warning
    files = [path for path in outage.folder.rglob("*") if path.is_file()]
    assert any(path.name == "mlflow.json" for path in files)
    assert not [path for path in files if b"secret" in path.read_bytes()]


@pytest.mark.needs("chromium")
def test_the_page_lists_all_cells_with_their_accuracy(outage, tmp_path):
    ((_, link),) = links(outage.database, outage.port)
    shown = open_page(link, tmp_path / "page.png")
    for cell, run in stored(outage.database).items():
        assert run["facts"][0].replace("&", "&amp;") in shown, cell
        steps = {step: value for key, step, _, value in run["points"] if key == "accuracy"}
        assert f"{steps[max(steps)]:.10g}"[:6] in shown, cell
    assert "robust/eps0.1" in shown
    assert (tmp_path / "page.png").stat().st_size > 10_000


def test_a_server_that_is_gone_is_one_line_for_track(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    write_result(tmp_path / STUDY, CELLS[0], [make_row(CELLS[0], 1)])
    with pytest.raises(UserError, match=r"tracking store http://\*\*\*@") as error:
        track(tmp_path, STUDY, f"http://me:secret@127.0.0.1:{free_port()}")
    assert "\n" not in str(error.value)
    assert "secret" not in str(error.value)
    with pytest.raises(UserError, match="does not exist"):
        track(tmp_path, "nothing", "sqlite:///x.db")
