"""Tracking with the real MLflow: concurrent processes, a server that dies, a store rebuilt."""

import csv
import os
import shutil
import socket
import sqlite3
import statistics
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing, contextmanager
from pathlib import Path

import psutil
import pytest

from tests.bundles import Lab
from tests.integration.conftest import environment
from tests.integration.ui_screenshot import open_page, serve
from tnfdt.cli import main
from tnfdt.files.atomic import write_json
from tnfdt.files.journal import Journal
from tnfdt.files.locks import exclusive
from tnfdt.files.records import SCHEMA, identity
from tnfdt.study.paths import Cell
from tnfdt.study.schema import ROOT, UserError
from tnfdt.tracking import init_store, track
from tnfdt.tracking.sqlite_store import links

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


def train(folder: Path, cell: Cell, *, epochs: int, pause: float = 0.0) -> None:
    """Train one cell as `tnfdt train` does; an older journal is gone on with."""
    out, rows = folder / "train" / cell.path, []
    with exclusive(out / ".lock"), Journal(out, PARAMS) as journal:
        for epoch in range(1, epochs + 1):
            time.sleep(pause)
            rows.append(make_row(cell, epoch))
            journal.log_epoch(rows[-1])
        write_result(folder, cell, rows)


def elsewhere(code: str, **options) -> subprocess.Popen:
    names = "from tests.integration.test_tracking import *"
    return subprocess.Popen([sys.executable, "-c", f"{names}; {code}"], cwd=ROOT, **options)


def train_elsewhere(folder: Path, cell: Cell, **options) -> subprocess.Popen:
    return elsewhere(f"train(Path({str(folder)!r}), Cell(*{tuple(cell)!r}), **{options!r})")


@contextmanager
def followed(uri: str, folder: Path):
    """A process that follows the study, as a Snakemake run has one; asked to end in the end."""
    command = ["tnfdt", "track", "--follow", "--study", folder.name]
    env = {key: value for key, value in environment().items() if not key.startswith("MLFLOW")}
    process = subprocess.Popen(
        [*command, "--set", f"results_dir={folder.parent}"],
        env=env | {"MLFLOW_TRACKING_URI": uri},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
    )  # fmt: skip
    try:
        yield process
        process.terminate()
        process.said = process.communicate(timeout=SOON)
    finally:
        process.kill()


# What a store holds, asked of SQLite itself


def query(path: Path, sql: str, *args) -> list[tuple]:
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=30)) as database:
        return database.execute(sql, args).fetchall()


def stored(path: Path) -> dict[str, dict]:
    """The active runs by key: what must be equal in a live and in a rebuilt store."""
    runs = query(
        path,
        "SELECT value, runs.run_uuid, name, status, start_time, end_time FROM runs "
        "JOIN tags ON runs.run_uuid = tags.run_uuid AND key = 'tnfdt.cell' "
        "WHERE lifecycle_stage = 'active' AND value LIKE '%/%'",
    )
    assert len({key for key, *_ in runs}) == len(runs), "two runs of one cell or group"
    keys = {run_id: key for key, run_id, *_ in runs}
    found = {key: _contents(path, run_id) | {"facts": facts} for key, run_id, *facts in runs}
    for run in found.values():
        run["parent"] = keys.get(run["tags"].pop("mlflow.parentRunId", None))
    return found


def _contents(path: Path, run_id: str) -> dict:
    own = "FROM {} WHERE run_uuid = ?"
    return {
        "tags": dict(query(path, f"SELECT key, value {own.format('tags')}", run_id)),
        "params": dict(query(path, f"SELECT key, value {own.format('params')}", run_id)),
        "points": Counter(
            query(path, f"SELECT key, step, timestamp, value {own.format('metrics')}", run_id)
        ),
    }


def cells_of(runs: dict[str, dict]) -> set[str]:
    return {key for key in runs if key.count("/") == 3}


def run_ids(folder: Path) -> dict[str, str]:
    """The run of each cell, by cell path, as mlflow.csv says."""
    with (folder / "mlflow.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    return {Cell(*(row[key] for key in Cell._fields)).path: row["run_id"] for row in rows}


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


# Eight processes, one follower and one fresh store


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    """A study whose eight cells were trained at once, and followed; nobody had made the store."""
    results = tmp_path_factory.mktemp("live")
    uri, folder = f"sqlite:///{results}/mlflow.db", results / STUDY
    with followed(uri, folder) as follower:
        processes = [train_elsewhere(folder, cell, epochs=3, pause=0.2) for cell in CELLS]
        assert [process.wait() for process in processes] == [0] * len(CELLS)
        wait_for((folder / "mlflow.csv").exists)
    assert follower.returncode == 0
    assert follower.said[0].startswith("8 cells in sqlite:///")
    assert not follower.said[1]
    return uri, folder


def test_eight_processes_on_a_fresh_store_lose_nothing(live):
    _, folder = live
    path = folder.parent / "mlflow.db"
    runs = stored(path)
    assert cells_of(runs) == {cell.path for cell in CELLS}
    for cell in CELLS:
        run = runs[cell.path]
        assert_complete(path, folder, cell)
        assert run["facts"][1] == "FINISHED"
        assert run["params"]["training.lr"] == "0.1"
        assert run["parent"] == f"digits/wrn10_1/{cell.method}"
    assert len(parents(path)) == 1
    assert query(path, "SELECT count(*) FROM experiments WHERE name = 'tnfdt/demo'") == [(1,)]
    names = {run["facts"][0] for run in runs.values()}
    assert "digits · wrn10_1 · TN & FDT · seed 3" in names


def test_which_run_is_whose_stands_in_one_file(live):
    _, folder = live
    sql = "SELECT value, run_uuid FROM tags WHERE key = 'tnfdt.cell' AND value LIKE '%/seed%'"
    assert run_ids(folder) == dict(query(folder.parent / "mlflow.db", sql))
    assert set(run_ids(folder)) == {cell.path for cell in CELLS}


def test_a_group_has_mean_and_sd_over_the_seeds_of_its_study(live):
    """The demo plans two of the four seeds that were trained: its tables have no more."""
    _, folder = live
    runs = stored(folder.parent / "mlflow.db")
    group = runs["digits/wrn10_1/tn"]
    assert group["facts"][:2] == ["digits · wrn10_1 · TN", "FINISHED"]
    assert group["tags"]["seeds"] == "0 1"
    assert group["parent"] is None
    found = {(key, step): value for key, step, _, value in group["points"]}
    seeds = [runs[f"digits/wrn10_1/tn/seed{seed}"]["points"] for seed in range(2)]
    for key, step in ((key, step) for key, step, *_ in seeds[0]):
        values = [value for points in seeds for k, s, _, value in points if (k, s) == (key, step)]
        assert found[key, step] == pytest.approx(statistics.mean(values))
        assert found[f"sd/{key}", step] == pytest.approx(statistics.stdev(values), abs=1e-12)


def test_a_rebuilt_store_equals_the_live_one_and_tracking_again_changes_nothing(live, empty):
    uri, folder = live
    results = folder.parent
    shutil.copy(empty, results / "rebuilt.db")
    for cell in CELLS[:2]:
        write_attack(folder, cell, 0.1)
    (folder / "tables").mkdir()
    (folder / "tables/claims.md").write_text("**reproduced**")

    assert not track(results, STUDY, uri).created
    attacked = stored(results / "mlflow.db")[CELLS[0].path]["points"]
    assert sum(key == "robust_curve/eps0.1" for key, *_ in attacked) == 40
    before = (results / "mlflow.db").read_bytes()
    again = track(results, STUDY, uri)
    assert (again.cells, again.created, again.updated) == (8, 0, 0)
    assert (results / "mlflow.db").read_bytes() == before

    rebuilt = track(results, STUDY, f"sqlite:///{results}/rebuilt.db")
    assert (rebuilt.created, rebuilt.problems) == (8, [])
    assert stored(results / "rebuilt.db") == stored(results / "mlflow.db")
    (parent,) = parents(results / "rebuilt.db")
    files = [path.name for path in (results / "rebuilt-artifacts" / parent).rglob("*.*")]
    assert files == ["claims.md"]
    run = run_ids(folder)[CELLS[0].path]
    files = {path.name for path in (results / "rebuilt-artifacts" / run).rglob("*.*")}
    assert files == {"record.json", "history.csv", "eps0.1.json"}


def test_a_cell_trained_again_replaces_its_run_and_its_groups(live):
    from mlflow import MlflowClient

    uri, folder = live
    path, cell = folder.parent / "mlflow.db", CELLS[2]
    track(folder.parent, STUDY, uri)  # mlflow.csv names this store again
    client, old = MlflowClient(uri), run_ids(folder)
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
    new = run_ids(folder)
    assert [key for key in old if old[key] != new[key]] == [cell.path]
    assert client.get_run(old[cell.path]).info.lifecycle_stage == "deleted"
    assert_complete(path, folder, cell)
    runs = stored(path)
    assert len(cells_of(runs)) == 8
    assert {runs[cell.path]["parent"] for cell in CELLS[:4]} == {"digits/wrn10_1/tn"}
    assert {step for key, step, *_ in runs["digits/wrn10_1/tn"]["points"] if key == "loss"} == {
        1,
        2,
    }
    assert len(parents(path)) == 1


def test_readings_that_only_attack_have_runs_which_name_their_training(place, monkeypatch):
    """Every cell of a study's multiverse.csv is in mlflow.csv."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    uri, path, folder = place
    lab = Lab(folder.parent, seeds=[0, 1], multiverse={"include": True, "random_start": [True]})
    places = (f"results_dir={lab.folder.parent}", f"tracking_uri={uri}")
    command = ["track", "--study", str(lab.file), "--set", places[0], "--set", places[1]]
    assert main(command) == 0
    before = path.read_bytes()
    assert main(command) == 0
    assert path.read_bytes() == before
    assert set(run_ids(lab.folder)) == {c.path for c in (*lab.study.cells, *lab.study.variants)}
    runs = stored(path)
    for cell in lab.study.variants:
        run = runs[cell.path]
        assert run["tags"]["trained_as"] == lab.study.trained_as(cell).path
        assert run["parent"] == cell.row
        shown = {key for key, *_ in run["points"]}
        assert {"accuracy", "robust/eps0.1", "robust/eps0.01"} <= shown
    group = runs["c10/resnet34/vanilla.random_start-true"]
    assert group["tags"]["seeds"] == "0 1"
    assert "sd/robust/eps0.1" in {key for key, *_ in group["points"]}


# Trainings that are killed, runs that are killed, machines that are busy


def burn() -> None:
    while True:
        pass


def test_an_epoch_is_shown_within_15_seconds_while_all_cores_are_busy(place):
    (uri, path, folder), cell = place, CELLS[0]
    out = folder / "train" / cell.path
    busy = [elsewhere("burn()") for _ in range(2 * os.cpu_count())]
    try:
        with exclusive(out / ".lock"), followed(uri, folder), Journal(out, PARAMS) as journal:
            journal.log_epoch(make_row(cell, 1))  # the run is there, mlflow is imported
            wait_for(lambda: cell.path in stored(path), 4 * SOON)
            begin = time.monotonic()
            journal.log_epoch(make_row(cell, 2))
            sql = "SELECT 1 FROM metrics WHERE key = 'accuracy' AND step = 2"
            wait_for(lambda: query(path, sql), 15)
            print(f"shown after {time.monotonic() - begin:.1f} s")
            assert stored(path)[cell.path]["facts"][1] == "RUNNING"
    finally:
        for process in busy:
            process.kill()


def test_a_killed_training_is_shown_as_killed_and_goes_on_in_the_same_run(place):
    (uri, path, folder), cell = place, CELLS[0]
    with followed(uri, folder):
        process = train_elsewhere(folder, cell, epochs=10_000, pause=0.1)
        run = wait_for(lambda: stored(path).get(cell.path))
        assert run["facts"][1] == "RUNNING"
        process.kill()
        process.wait()
        wait_for(lambda: stored(path)[cell.path]["facts"][1] == "KILLED")
        run = stored(path)[cell.path]
        with (folder / "train" / cell.path / "journal.jsonl").open("a") as file:
            file.write('{"epoch": 3, "lo')  # torn by the kill
        done = max(step for key, step, *_ in run["points"] if key == "loss")
        train(folder, cell, epochs=done + 5)
    again = stored(path)[cell.path]
    assert again["facts"][1] == "FINISHED"
    assert run["points"].keys() <= again["points"].keys()
    steps = Counter(step for key, step, *_ in again["points"] if key == "loss")
    assert steps == Counter(range(1, done + 6))


def test_a_follower_ends_with_its_run(project):
    """However the run ends: here by SIGKILL."""
    code = """
import os, time
from tnfdt.files.atomic import namespace
from tnfdt.run import follower
os.environ["TNFDT_PARENT"] = f"{namespace()} {os.getpid()}"
follower.start()
print(follower._started[0].pid, flush=True)
time.sleep(600)
"""
    env = environment() | {"PYTHONPATH": str(ROOT), "TNFDT_STUDY": project.study.name}
    run = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=project.folder, env=env, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    follower = psutil.Process(int(run.stdout.readline()))
    wait_for((project.folder / "results/mlflow.db").exists)
    run.kill()
    run.wait()
    wait_for(lambda: not follower.is_running() or follower.status() == psutil.STATUS_ZOMBIE, 15)


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
def test_a_store_that_does_not_answer_delays_nothing(place, stuck):
    (uri, path, folder), cell = place, CELLS[1]
    with stuck(path) as broken:
        with followed(broken, folder) as follower:
            begin = time.monotonic()
            train(folder, cell, epochs=3)
            assert time.monotonic() - begin < 1
            wait_for(lambda: psutil.Process(follower.pid).memory_info().rss > 150e6)
            time.sleep(1)  # it has imported mlflow and waits for the store
            begin = time.monotonic()
        assert time.monotonic() - begin < 30
    assert follower.returncode == 2
    assert [line.partition(":")[0] for line in follower.said[1].splitlines()][-1] == "tnfdt"
    track(folder.parent, STUDY, uri)
    steps = [step for key, step, *_ in stored(path)[cell.path]["points"] if "/" not in key]
    assert Counter(steps) == {1: CURVES, 2: CURVES, 3: CURVES}


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


class Outage:
    """A training whose server is killed when it holds half of it, and comes back afterwards."""

    def __init__(self, database: Path, results: Path) -> None:
        self.database, self.results, self.folder = database, results, results / STUDY
        self.port, self.cell = free_port(), CELLS[4]
        self.uri = f"http://me:secret@127.0.0.1:{self.port}"
        self.rows: list[dict] = []
        self.slowest, self.said = 0.0, ""

    def train(self) -> None:
        out = self.folder / "train" / self.cell.path
        with exclusive(out / ".lock"), Journal(out, PARAMS) as journal:
            with serve(self.database, self.port):
                while not query(self.database, "SELECT 1 FROM metrics WHERE key = 'loss' LIMIT 1"):
                    self.epoch(journal)
            for _ in range(160):  # more points than one batch takes
                self.epoch(journal)
            write_result(self.folder, self.cell, self.rows)

    def epoch(self, journal: Journal) -> None:
        time.sleep(0.05)
        self.rows.append(make_row(self.cell, len(self.rows) + 1))
        begin = time.monotonic()
        journal.log_epoch(self.rows[-1])
        self.slowest = max(self.slowest, time.monotonic() - begin)


@pytest.fixture(scope="module")
def outage(empty, tmp_path_factory):
    results = tmp_path_factory.mktemp("outage")
    found = Outage(Path(shutil.copy(empty, results)), results)
    with followed(found.uri, found.folder) as follower:
        found.train()
    found.said = "".join(follower.said)
    for cell in CELLS[:3]:
        write_result(found.folder, cell, [make_row(cell, 1)])
        write_attack(found.folder, cell, 0.1)
    with serve(found.database, found.port):
        track(results, STUDY, found.uri)
        yield found


def test_a_server_that_dies_in_a_training_costs_no_time(outage):
    assert outage.slowest < 0.5
    warnings = [line for line in outage.said.splitlines() if line.startswith("tracking: ")]
    assert len(warnings) <= 2, outage.said  # before it was there, and after
    assert all("store http://***@127.0.0.1" in line for line in warnings)


def test_a_server_that_dies_in_a_training_costs_no_number(outage, empty):
    assert_complete(outage.database, outage.folder, outage.cell)
    runs = stored(outage.database)
    assert cells_of(runs) == {cell.path for cell in (*CELLS[:3], outage.cell)}
    assert len(parents(outage.database)) == 1
    rebuilt = outage.results / "rebuilt.db"
    shutil.copy(empty, rebuilt)
    track(outage.results, STUDY, f"sqlite:///{rebuilt}")
    assert stored(rebuilt) == runs


def test_no_credential_reaches_the_log_or_the_disk(outage):
    assert "secret" not in outage.said
    files = [path for path in outage.folder.rglob("*") if path.is_file()]
    assert outage.folder / "mlflow.csv" in files
    assert not [path for path in files if b"secret" in path.read_bytes()]


@pytest.mark.needs("chromium")
def test_the_page_shows_groups_with_mean_and_sd_first(outage, tmp_path):
    ((_, link),) = links(outage.database, outage.port)
    shown = open_page(link, tmp_path / "page.png")
    runs = stored(outage.database)
    for key in set(runs) - cells_of(runs):
        group = runs[key]
        assert group["facts"][0].replace("&", "&amp;") in shown, key
        steps = {step: value for name, step, _, value in group["points"] if name == "accuracy"}
        assert f"{steps[max(steps)]:.10g}"[:6] in shown, key
    assert "· seed" not in shown  # behind their groups
    assert "robust/eps0.1" in shown
    assert "sd/accuracy" in shown
    assert (tmp_path / "page.png").stat().st_size > 10_000


def test_a_server_that_never_answers_is_one_line_within_20_seconds(tmp_path):
    write_result(tmp_path / STUDY, CELLS[0], [make_row(CELLS[0], 1)])
    begin = time.monotonic()
    with silent(tmp_path) as uri, pytest.raises(UserError, match="tracking store http") as error:
        track(tmp_path, STUDY, uri)
    assert time.monotonic() - begin < 20
    assert "make sure it runs, then `tnfdt track`" in str(error.value)
    assert "\n" not in str(error.value)


def test_a_server_that_is_gone_is_one_line_for_track(tmp_path):
    write_result(tmp_path / STUDY, CELLS[0], [make_row(CELLS[0], 1)])
    with pytest.raises(UserError, match=r"tracking store http://\*\*\*@") as error:
        track(tmp_path, STUDY, f"http://me:secret@127.0.0.1:{free_port()}")
    assert "\n" not in str(error.value)
    assert "secret" not in str(error.value)
    with pytest.raises(UserError, match="does not exist"):
        track(tmp_path, "nothing", "sqlite:///x.db")
