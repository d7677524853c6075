"""The production profile on a real Slurm of one node with two pretended GPUs.

A job is cancelled, Snakemake is killed, slurmctld is restarted, and in the end the tables are
those of a local run. A job that runs out of time is queued again.
"""

from __future__ import annotations

import copy
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.integration.conftest import BIN, SMALL, Project
from tests.integration.slurm_cluster import SlurmCluster
from tnfdt.run import slurm
from tnfdt.status import stalls
from tnfdt.study.paths import Cell
from tnfdt.study.schema import ROOT

executor = pytest.importorskip("snakemake_executor_plugin_slurm")
A, B = (Cell("digits", "wrn10_1", method, 0) for method in ("vanilla", "tn_fdt"))
PATIENCE = 300.0  # seconds for any one thing to happen on a busy machine


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    folder = Path(tempfile.mkdtemp(prefix="slurm-"))  # pytest's paths are too long for a socket
    try:
        with SlurmCluster(folder) as running:
            yield running
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class SlurmProject(Project):
    """A study of two cells whose trainings last long enough to be interrupted."""

    def __init__(self, folder: Path, cluster: SlurmCluster) -> None:
        folder.mkdir()
        super().__init__(folder)
        study = copy.deepcopy(SMALL)
        study["training"] = {"epochs": 25, "lr_drop_every": 10}
        study["attack"] = {"epsilons": [0.1], "steps": 5, "limit": 20}
        self.write(study)
        path = f"{cluster.folder / 'bin'}:{BIN}:{os.environ['PATH']}"
        self.environment = {**cluster.environment, "PATH": path, "OMP_NUM_THREADS": "1"}
        self.profiles, self.settings = ROOT / "profiles", ["tracking_uri=none"]

    def command(self, *args: str, profile: str = "slurm") -> list[str]:
        where = ["-s", str(ROOT / "Snakefile"), "--configfile", str(ROOT / "config/config.yaml")]
        where += ["--workflow-profile", str(self.profiles / profile)]
        settings = [f"study={self.study.name}", *self.settings]
        return ["snakemake", *where, *args, "--config", *settings]

    def use_short_partition(self) -> None:
        """What a user does by hand: edit the profile's marked lines, set the time limit."""
        self.profiles, self.settings = self.folder, [*self.settings, "time_limit=1"]
        text = (ROOT / "profiles/slurm/config.yaml").read_text()
        text = text.replace("slurm_partition: cpu", "slurm_partition: short")
        target = self.folder / "slurm/config.yaml"
        target.parent.mkdir()
        target.write_text(text.replace("&gpu gpu", "&gpu short"))

    def on_slurm(self, target: str | Path = "make_tables") -> list[str]:
        """The production profile; only the wait before the first look at a job is shorter."""
        return self.command(str(target), "--slurm-init-seconds-before-status-checks", "2")

    def start(self, log: str, target: str | Path = "make_tables") -> subprocess.Popen[bytes]:
        with (self.folder / log).open("wb") as file:
            return subprocess.Popen(
                self.on_slurm(target),
                cwd=self.folder,
                env=self.environment,
                stdout=file,
                stderr=file,
            )

    def text(self, path: str) -> str:
        file = self.folder / path
        return file.read_text(errors="replace") if file.exists() else ""

    def log(self, cell: Cell) -> str:
        return self.text(f"results/{self.name}/logs/train/{cell.path}.log")

    def record(self, cell: Cell) -> Path:
        return self.results / "train" / cell.path / "record.json"

    def job(self, cell: Cell) -> str:
        """The newest Slurm job that trains a cell."""
        folder = self.folder / ".snakemake/slurm_logs/rule_train_cell"
        found = folder.glob(f"{'_'.join(map(str, cell))}/*.log")
        return str(max((int(path.stem) for path in found), default=0))

    def halfway(self, cell: Cell) -> bool:
        return "epoch 2/" in self.log(cell) and not self.record(cell).exists()

    def status(self) -> str:
        command = ["tnfdt", "status", "--study", self.study.name]
        done = subprocess.run(
            command, cwd=self.folder, env=self.environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


def wait_for(what: str, ready: Callable[[], object], log: Callable[[], str]) -> None:
    end = time.monotonic() + PATIENCE
    while not ready():
        assert time.monotonic() < end, f"waited in vain for {what}:\n{log()[-4000:]}"
        time.sleep(0.05)


def training(folder: Path, cell: Cell) -> psutil.Process | None:
    """The process that trains a cell in this folder."""
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if cell.path in words and "train" in words and process.cwd() == str(folder):
            return process
    return None


@pytest.mark.needs("slurm")
def test_a_cancelled_job_and_a_killed_snakemake_leave_no_trace(
    cluster: SlurmCluster, tmp_path: Path
) -> None:
    project = SlurmProject(tmp_path / "cluster", cluster)
    first = project.start("first.log")
    log = lambda: project.text("first.log") + project.log(A)  # noqa: E731
    try:
        wait_for("A half-way", lambda: project.halfway(A), log)
        process = training(project.folder, A)
        assert process is not None
        assert process.environ()["CUDA_VISIBLE_DEVICES"] in ("0", "1")
        cancelled = project.job(A)
        assert cluster.run("squeue", "-h", "--jobs", cancelled, "-o", "%P").strip() == "gpu"
        cluster.run("scancel", cancelled)
        wait_for("A to be tried again", lambda: project.job(A) != cancelled, log)
        wait_for("A to go on", lambda: "going on at epoch" in project.log(A), log)
    finally:
        first.send_signal(signal.SIGKILL)
        first.wait()

    assert not project.record(A).exists()
    status = project.status()
    listed = re.search(r"`scancel ([\d ]+)`", status)
    assert listed is not None, status
    assert project.job(A) in listed[1].split()
    assert "▶" in status or ">" in status

    again = subprocess.run(
        project.on_slurm(), cwd=project.folder, env=project.environment, capture_output=True
    )
    assert again.returncode != 0  # the lock: nothing is submitted twice by accident
    assert b"--unlock" in again.stderr + again.stdout
    subprocess.run(
        project.command("--unlock"), cwd=project.folder, env=project.environment, check=True
    )
    second = project.start("second.log")
    told = lambda: project.text("second.log")  # noqa: E731
    try:
        wait_for("two jobs", lambda: told().count("has been submitted") >= 2, told)
        cluster.stop_controller()  # Snakemake then asks sacct, which knows nothing of these jobs
        wait_for("a question to sacct", lambda: "Falling back to 'sacct'" in told(), told)
        cluster.start_controller()
        wait_for("the end", lambda: second.poll() is not None, told)
    finally:
        second.kill()  # a Snakemake that waits for ever is deaf to SIGTERM
        second.wait()
    assert second.returncode == 0, project.text("second.log")[-4000:]
    assert "2 done" in project.status()

    local = SlurmProject(tmp_path / "local", cluster)
    subprocess.run(
        local.command("make_tables", "--cores", "2", profile="default"),
        cwd=local.folder,
        env=local.environment,
        check=True,
        capture_output=True,
    )
    names = {path.name for path in (local.results / "tables").iterdir()}
    names -= {"sources.csv", "cells.json"}
    assert {"table1.csv", "table1.tex", "table1.md", "claims.json"} <= names
    for name in names:  # the two others hold times, or checksums of records that do
        made, expected = (side.results / "tables" / name for side in (project, local))
        assert made.read_bytes() == expected.read_bytes(), name


@pytest.mark.needs("slurm")
def test_a_training_longer_than_its_partition_allows_goes_on_in_time(
    cluster: SlurmCluster, tmp_path: Path
) -> None:
    """A job with a limit of a minute stops after half of it; this one is slowed down by a pause."""
    project = SlurmProject(tmp_path / "short", cluster)
    project.use_short_partition()
    assert "PartitionTimeLimit; set time_limit" in status_of_a_long_job(cluster, project)

    run = project.start("run.log", project.record(A).relative_to(project.folder))
    log = lambda: project.text("run.log") + project.log(A)  # noqa: E731
    try:
        wait_for("A half-way", lambda: project.halfway(A), log)
        job, process = project.job(A), training(project.folder, A)
        assert process is not None
        process.suspend()
        time.sleep(28)
        process.resume()
        wait_for("A to be queued again", lambda: restarts(cluster, job) == "1", log)
        wait_for("the end", lambda: run.poll() is not None, log)
    finally:
        run.kill()
        run.wait()
    assert run.returncode == 0, log()[-4000:]
    assert "going on at epoch" in project.log(A)
    assert log().count("has been submitted") == 2  # the data and A, which has never failed


def restarts(cluster: SlurmCluster, job: str) -> str:
    """How often Slurm has started a job again."""
    shown = cluster.run("scontrol", "show", "job", job)
    return (re.findall(r"Restarts=(\d+)", shown) or [""])[0]


def status_of_a_long_job(cluster: SlurmCluster, project: SlurmProject) -> str:
    """What `tnfdt status` says of a job that asks for more time than its partition gives."""
    mark, lock = project.results / ".unfinished", project.folder / ".snakemake/locks/0.output.lock"
    for path, text in ((mark, stalls.CLUSTER), (lock, f"results/{project.name}/train/x\n")):
        path.parent.mkdir(parents=True)
        path.write_text(text)
    comment = f"rule_train_cell_wildcards_{'_'.join(map(str, A))}"
    options = ["--parsable", "-t", "10", "-p", "short", "-D", str(project.folder)]
    job = cluster.run("sbatch", *options, "--comment", comment, "--wrap", "true").strip()
    reason = lambda: cluster.run("squeue", "-h", "--jobs", job, "-o", "%r").strip()  # noqa: E731
    wait_for("a reason", lambda: reason() == "PartitionTimeLimit", reason)
    shown = project.status()
    cluster.run("scancel", job)
    shutil.rmtree(project.results)
    shutil.rmtree(project.folder / ".snakemake")
    return shown


def fake(folder: Path, name: str) -> None:
    program = folder / name
    program.write_text(f'#!/bin/sh\necho "{name} $*"\n')
    program.chmod(0o755)


def test_the_executors_question_to_sacct_is_answered_by_squeue(tmp_path: Path) -> None:
    """The executor asks sacct when slurmctld is away for a moment, whatever the profile says."""
    from snakemake_executor_plugin_slurm.job_status_query import query_job_status_sacct

    for name in ("sacct", "squeue"):
        fake(tmp_path, name)
    environment = {"PATH": f"{slurm.SHIMS}:{tmp_path}:{os.environ['PATH']}"}

    def output(command: str) -> str:
        done = subprocess.run(command, shell=True, env=environment, capture_output=True, text=True)
        return done.stdout.strip()

    answer = output(query_job_status_sacct("run-17"))
    assert answer == "squeue --states=all --noheader --format=%i|%T --name run-17"
    assert output("sacct -j 5 -o Reason") == "sacct -j 5 -o Reason"


def test_the_settings_of_the_profile_exist() -> None:
    """A misspelt key of a profile would be refused only on a cluster."""
    from tnfdt.study.schema import read_yaml

    profile = read_yaml(ROOT / "profiles/slurm/config.yaml")
    help_text = subprocess.run(
        [str(BIN / "snakemake"), "--help"], capture_output=True, text=True
    ).stdout
    for key in profile:
        assert f"--{key}" in help_text, key
    rules = "".join(path.read_text() for path in (ROOT / "workflow/rules").glob("*.smk"))
    for rule in profile["set-resources"]:
        assert f"rule {rule}:" in rules
