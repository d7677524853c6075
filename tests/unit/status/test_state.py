"""The status of a study: each state from the files that mean it, and quick on a large grid."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from filelock import FileLock

from tnfdt.run import slurm
from tnfdt.status import stalls, state
from tnfdt.status.page import render
from tnfdt.study.machine import Machine, load_machine
from tnfdt.study.paths import Cell
from tnfdt.study.schema import ROOT, read_yaml
from tnfdt.study.study import Study, load_study, study_from_dict

EPSILONS = ("0.1", "0.01", "0.001", "0.0001")


@pytest.fixture
def study() -> Study:
    return load_study("demo")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.chdir(tmp_path)
    return load_machine(overrides={"study": "demo"})


def write(path: str, text: str = "", *, age: float = 0) -> Path:
    """A file of the demo study, last written `age` seconds ago."""
    target = Path("results/demo", path)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text)
    os.utime(target, (time.time() - age,) * 2)
    return target


def first(study: Study, machine: Machine) -> state.CellStatus:
    return state.read(study, machine).cells[0]


CELL = "digits/wrn10_1/vanilla/seed0"
LOG = f"logs/train/{CELL}.log"
PROGRESS = f"{CELL}: 40 %, 600 s left, epoch 2/5\n"


def test_other_readings_are_shown_where_all_runs_them_or_one_has_begun(machine: Machine) -> None:
    study = with_readings(include=True)
    found = state.read(study, machine)
    rows = [item.cell.method for item in found.cells if item.cell.seed == 0]
    assert rows[5:] == sorted(f"{name}.random_start-true" for name in rows[:5])
    assert found.attacks == (0, 2 * 4 * len(study.cells))
    assert "digits/wrn10_1/fdt.random_start-true" in render(study, found)
    study = with_readings(include=False)
    assert len(state.read(study, machine).cells) == len(study.cells)
    variant = CELL.replace("vanilla", "vanilla.random_start-true")
    write(f"attack/{variant}/eps0.1.json", "{}")
    found = state.read(study, machine)
    shown = {item.cell.path: item for item in found.cells}
    assert shown[variant].state == "waiting"  # its network is vanilla's, which is not trained
    write(f"train/{CELL}/record.json", "{}")
    shown = {item.cell.path: item for item in state.read(study, machine).cells}
    assert (shown[variant].state, shown[variant].attacks) == ("trained", 1)


def with_readings(*, include: bool) -> Study:
    raw = read_yaml(ROOT / "config/studies/demo.yaml")
    raw["multiverse"] = {"random_start": [True], "include": include}
    return study_from_dict(raw, name="demo", where="demo")


def test_an_untouched_study_waits(study: Study, machine: Machine) -> None:
    found = state.read(study, machine)
    assert found.counts()["waiting"] == len(study.cells)
    assert found.attacks == (0, 4 * len(study.cells))
    assert found.problems == []


def test_done_needs_training_attacks_and_audit(study: Study, machine: Machine) -> None:
    write(f"train/{CELL}/record.json")
    for epsilon in EPSILONS[:3]:
        write(f"attack/{CELL}/eps{epsilon}.json")
    assert (first(study, machine).state, first(study, machine).attacks) == ("trained", 3)
    write(f"attack/{CELL}/eps0.0001.json")
    assert (first(study, machine).state, first(study, machine).attacks) == ("trained", 4)
    write(f"logs/audit/{CELL}.log", "going\n")
    assert first(study, machine).state == "running"
    write(f"audit/{CELL}/audit.json")
    assert (first(study, machine).state, first(study, machine).attacks) == ("done", 4)
    assert state.read(study, machine).audits == (1, 5)


def test_a_held_lock_is_a_running_cell_however_old_its_log(study: Study, machine: Machine) -> None:
    write(LOG, PROGRESS, age=10_000)
    with FileLock(write(f"train/{CELL}/.lock")):
        assert first(study, machine).state == "running"
    assert first(study, machine).state == "stopped"


def test_a_fresh_log_is_a_running_cell_also_elsewhere(study: Study, machine: Machine) -> None:
    write(f"train/{CELL}/.lock")
    write(LOG, PROGRESS, age=state.ALIVE_SECONDS / 2)
    found = first(study, machine)
    assert (found.state, found.epoch) == ("running", 2)
    assert found.eta == pytest.approx(600 - state.ALIVE_SECONDS / 2, abs=2)


def test_epoch_and_eta_from_the_journal(study: Study, machine: Machine) -> None:
    now = time.time()
    head = {"start": now - 30, "params": {}}
    rows = [{"epoch": epoch, "time": now - 10 * (3 - epoch)} for epoch in (1, 2, 2, 3)]
    torn = '{"epoch": 4, "ti'
    write(f"train/{CELL}/journal.jsonl", "\n".join([*map(json.dumps, [head, *rows]), torn]))
    found = first(study, machine)
    assert (found.state, found.epoch) == ("running", 3)
    assert found.eta == pytest.approx(2 * 10, abs=2)


@pytest.mark.parametrize(
    ("text", "age", "state"),
    [
        (PROGRESS + "tnfdt: training diverged: the loss is nan\n", 1, "failed"),
        (PROGRESS + "tnfdt: stopped; the same command goes on\n", 500, "stopped"),
        ("Traceback (most recent call last):\n  x\nRuntimeError: boom\n", 1, "failed"),
        ("Traceback (most recent call last):\n  x\nValueError: a\nb\n", 500, "failed"),
        (PROGRESS, 500, "stopped"),
        ("", 500, "stopped"),
    ],
)
def test_what_a_log_says(study: Study, machine: Machine, text: str, age: float, state: str) -> None:
    write(LOG, text, age=age)
    found = first(study, machine)
    assert found.state == state
    assert found.note == (text.splitlines() or [""])[-1].strip()


def test_a_failed_attack_is_told_before_a_running_one(study: Study, machine: Machine) -> None:
    write(f"train/{CELL}/record.json")
    write(f"logs/attack/{CELL}/eps0.1.log", "going\n")
    assert first(study, machine).state == "running"
    write(f"logs/attack/{CELL}/eps0.001.log", "tnfdt: no space left\n")
    found = first(study, machine)
    assert (found.state, found.note) == ("failed", "tnfdt: no space left")


def test_zero_bytes_of_a_truncated_log_are_skipped(study: Study, machine: Machine) -> None:
    write(LOG, "\0" * 5000 + "tnfdt: bad\n")
    assert first(study, machine).note == "tnfdt: bad"


def test_a_dataset_that_failed_is_a_problem(study: Study, machine: Machine) -> None:
    write("logs/data/digits.log", "tnfdt: digits: wrong checksum\n", age=5)
    (problem,) = state.read(study, machine).problems
    assert "digits: wrong checksum" in problem
    write("data/digits/manifest.json")
    assert state.read(study, machine).problems == []


def lock_outputs(study: str = "demo") -> None:
    folder = Path(".snakemake/locks")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "0.output.lock").write_text(f"results/{study}/train/{CELL}/record.json\n")


def queue(monkeypatch: pytest.MonkeyPatch, *jobs: str, folder: str = "") -> None:
    """An unfinished run on a cluster whose squeue shows these jobs: number|state|reason|comment."""
    write(".unfinished", stalls.CLUSTER)
    shown = "".join(f"{job}|{folder or os.getcwd()}\n" for job in jobs)
    monkeypatch.setattr(slurm, "_ask", lambda *command: shown)


VANILLA = "rule_train_cell_wildcards_digits_wrn10_1_vanilla_0"


def test_a_killed_snakemake_is_told_with_the_way_out(study: Study, machine: Machine) -> None:
    lock_outputs("another")
    assert state.read(study, machine).problems == []
    lock_outputs()
    (problem,) = state.read(study, machine).problems
    assert "start the same command again" in problem
    assert "unlock" not in problem
    assert "scancel" not in problem


def test_orphaned_cluster_jobs_are_named(
    study: Study, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock_outputs()
    attack = VANILLA.replace("train", "attack") + "_0.01"
    other = "rule_train_cell_wildcards_c10_wrn10_1_vanilla_0"  # of another study
    queue(
        monkeypatch,
        f"9|RUNNING|None|{VANILLA}",
        f"17|PENDING|Priority|{attack}",
        f"18|RUNNING|None|{other}",
        "101|RUNNING|None|rule_make_tables",
        "102|RUNNING|None|(null)",
    )
    (problem,) = state.read(study, machine).problems
    assert "`scancel 9 17 101`" in problem
    assert not stalls.is_left_over(study, machine)
    queue(monkeypatch, f"9|RUNNING|None|{VANILLA}", folder="/elsewhere")
    assert "scancel" not in state.read(study, machine).problems[0]
    assert stalls.is_left_over(study, machine)
    monkeypatch.setattr(slurm, "_ask", lambda *command: None)
    assert "squeue does not say" in state.read(study, machine).problems[0]
    assert not stalls.is_left_over(study, machine)


def test_the_reason_of_a_pending_job_is_named(
    study: Study, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stalls, "is_snakemake_here", lambda: True)
    lock_outputs()
    jobs = [f"{n}|PENDING|PartitionTimeLimit|{VANILLA}" for n in (1, 2)]
    queue(monkeypatch, *jobs, f"3|PENDING|Resources|{VANILLA}")
    found = state.read(study, machine)
    assert found.pending == ["1 job is pending: Resources"]
    assert found.pending[0] in render(study, found)
    (problem,) = found.problems
    assert "2 jobs are pending forever: PartitionTimeLimit; set time_limit" in problem


def test_a_snakemake_that_waits_for_nothing_is_told(
    study: Study, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stalls, "is_snakemake_here", lambda: True)
    lock_outputs()
    write(LOG, PROGRESS, age=stalls.WAIT_SECONDS + 10)
    queue(monkeypatch, f"9|RUNNING|None|{VANILLA}")
    assert state.read(study, machine).problems == []
    queue(monkeypatch)
    (problem,) = state.read(study, machine).problems
    assert "all jobs are done but Snakemake waits" in problem
    write(LOG, PROGRESS, age=10)  # it may still have to look
    assert state.read(study, machine).problems == []


def test_a_lock_of_a_living_snakemake_is_no_problem(
    study: Study, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stalls, "is_snakemake_here", lambda: True)
    lock_outputs()
    write(LOG, PROGRESS, age=30)
    assert state.read(study, machine).problems == []


def test_a_silent_job_under_a_living_snakemake_is_a_stall(
    study: Study, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stalls, "is_snakemake_here", lambda: True)
    lock_outputs()
    queue(monkeypatch, f"17|RUNNING|None|{VANILLA}", f"18|RUNNING|None|{VANILLA}1")
    write(LOG, PROGRESS, age=2 * stalls.STALL_SECONDS)
    (problem,) = state.read(study, machine).problems
    assert CELL in problem
    assert "squeue --jobs 17`" in problem


def test_snakemake_is_found_by_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert not stalls.is_snakemake_here()
    code = "import sys, time; sys.stdin.read()"
    command = [sys.executable, "-c", code, "snakemake"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, cwd=tmp_path) as process:
        named = [sys.executable, "snakemake"]
        monkeypatch.setattr(
            "psutil.Process.cmdline", lambda self: named if self.pid == process.pid else []
        )
        assert stalls.is_snakemake_here()
        monkeypatch.setattr("psutil.Process.cmdline", lambda self: [*named, "--mode", "remote"])
        assert not stalls.is_snakemake_here()


def test_json_has_every_cell(
    study: Study, machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    write(f"train/{CELL}/record.json")
    assert state.run(study, machine, watch=False, as_json=True) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["counts"]["trained"] == 1
    assert [cell["cell"] for cell in shown["cells"]] == [cell.path for cell in study.cells]


def test_the_page_has_a_row_per_method_and_the_failure(study: Study, machine: Machine) -> None:
    write(LOG, "tnfdt: no space left\n")
    write(f"train/{CELL[:-1]}1/record.json")
    page = render(study, state.read(study, machine), width=100)
    assert "digits/wrn10_1/vanilla  ✗□  0/8" in page or "digits/wrn10_1/vanilla  xo  0/8" in page
    assert f"{CELL}: tnfdt: no space left" in page
    assert all(len(line) <= 100 for line in page.splitlines())


def test_many_seeds_wrap(study: Study, machine: Machine) -> None:
    cells = tuple(Cell("digits", "wrn10_1", "vanilla", seed) for seed in range(300))
    large = replace(study, grid={"table1": cells}, seeds=tuple(range(300)))
    page = render(large, state.read(large, machine), width=100)
    assert all(len(line) <= 100 for line in page.splitlines())
    assert sum(line.count("·") + line.count(".") for line in page.splitlines()) >= 300


def test_status_imports_neither_torch_nor_mlflow() -> None:
    code = (
        "import sys; from tnfdt import cli; cli.main(['status', '--study', 'demo']);"
        "print(sorted({'torch', 'mlflow', 'numpy', 'pandas'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "[]", done.stderr


def test_ten_thousand_cells_in_three_seconds(study: Study, machine: Machine) -> None:
    cells = [Cell("digits", "wrn10_1", m, s) for m in study.methods for s in range(2000)]
    large = replace(study, grid={"table1": tuple(cells)})
    for cell in cells[::4]:
        Path("results/demo/train", cell.path).mkdir(parents=True)
    start = time.perf_counter()
    found = state.read(large, machine)
    assert time.perf_counter() - start < 3
    assert len(found.cells) == 10_000
