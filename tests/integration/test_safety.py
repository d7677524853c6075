"""Hostile names and secrets through the real pipeline; the real MLflow page and its sockets."""

import socket
import subprocess
import time
from contextlib import contextmanager

import psutil
import pytest
import yaml

from tests.integration.conftest import Project, environment
from tnfdt.study.schema import ROOT

EVIL = "x y: ;$(touch HACK)'\"&`touch HACK`*?!~\\é😀 #007"
SECRETS = {
    "MLFLOW_TRACKING_URI": "http://me:hush%40uri@127.0.0.1:9/?token=hushquery",
    "MLFLOW_TRACKING_USERNAME": "hushuser",
    "MLFLOW_TRACKING_PASSWORD": "hushpassword",
    "MLFLOW_TRACKING_TOKEN": "hushtoken",
    "AWS_SECRET_ACCESS_KEY": "hushaws",
}
MARKUP = "</script><script>hack()</script><img src=x onerror=hack()> {{ 7 * 7 }} `_ |x|"
ONE_CELL = {
    "description": MARKUP,
    "grid": {"table1": {"datasets": ["digits"], "models": ["wrn10_1"], "methods": ["vanilla"]}},
    "seeds": [0],
    "methods": {"vanilla": {}},
    "datasets": {"digits": {}},
    "limit": {"train": 100, "test": 50},
    "training": {"epochs": 1},
    "attack": {"epsilons": [0.1], "steps": 2, "limit": 10},
}


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """One cell, run to its report, with folders that a shell would act on and secrets around."""
    project = Project(tmp_path_factory.mktemp("hostile"))
    study = project.folder / f"{EVIL} study" / "one.yaml"
    study.parent.mkdir()
    study.write_text(yaml.safe_dump(ONE_CELL))
    settings = {"study": str(study), "results_dir": EVIL, "data_dir": f"{EVIL} data"}
    (project.folder / "mine.yaml").write_text(yaml.safe_dump(settings))
    where = ("-s", str(ROOT / "Snakefile"), "--workflow-profile", str(ROOT / "profiles/default"))
    files = ("--configfile", str(ROOT / "config/config.yaml"), "mine.yaml")
    done = project.run("snakemake", "--cores", "2", *where, *files, env=SECRETS)
    project.said = done.stdout + done.stderr
    return project


def test_folders_that_a_shell_would_act_on_are_only_folders(hostile):
    results = hostile.folder / EVIL / "one"
    made = {path.name for path in results.rglob("*") if path.is_file()}
    assert made >= {"record.json", "eps0.1.json", "table1.tex", "report.html"}, hostile.said
    assert not list(hostile.folder.rglob("HACK"))


def test_no_secret_is_printed_or_stored(hostile):
    """In the results, the report and what Snakemake keeps; the store cannot be reached."""
    assert "tracking store http://***@127.0.0.1:9" in hostile.said
    assert "hush" not in hostile.said
    files = [path for path in hostile.folder.rglob("*") if path.is_file()]
    assert any(".snakemake" in path.parts for path in files)
    assert not [path for path in files if b"hush" in path.read_bytes()]


def test_no_secret_is_printed_or_stored_after_a_failure(project):
    """The training fails; Snakemake shows its log and its command, and keeps both."""
    project.write(ONE_CELL)
    project.snakemake("data")
    with (project.results / "data/digits/train_x.npy").open("r+b") as pixels:
        pixels.seek(-1, 2)
        pixels.write(b"\xaa")  # the training refuses what is not the prepared copy
    done = project.run(*project.snakemake_command(), check=False, env=SECRETS)
    assert done.returncode == 1
    assert "Error in rule train_cell" in done.stderr
    assert "hush" not in done.stdout + done.stderr
    files = [path for path in project.folder.rglob("*") if path.is_file()]
    assert [path for path in files if path.suffix == ".log"]
    assert not [path for path in files if b"hush" in path.read_bytes()]


def test_markup_in_a_study_is_only_text_in_the_report(hostile):
    report = (hostile.folder / EVIL / "one/report.html").read_text()
    assert "hack()</script>" not in report
    assert "onerror=hack()>" not in report


def test_a_password_in_snakemakes_config_is_refused_before_it_is_logged(project):
    uri = SECRETS["MLFLOW_TRACKING_URI"]
    command = project.snakemake_command("--dry-run", tracking_uri=uri)
    done = project.run(*command, check=False)
    assert done.returncode != 0
    assert "tnfdt: --config tracking_uri=http://***@127.0.0.1:9/: a password" in done.stderr
    assert "hush" not in done.stdout + done.stderr
    assert not list(project.folder.glob(".snakemake/log/*"))


@contextmanager
def page(project, port):
    """`tnfdt ui` while the block runs."""
    store = f"tracking_uri=sqlite:///{project.folder}/mlflow.db"
    command = ["tnfdt", "ui", "--port", str(port), "--set", store]
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = psutil.Popen(command, cwd=project.folder, env=environment(), **pipes)
    try:
        yield process
    finally:
        for member in (*process.children(recursive=True), process):
            member.kill()
        process.wait()


def listening(process) -> set[str]:
    family = (process, *process.children(recursive=True))
    found = [link for member in family for link in member.net_connections()]
    return {link.laddr.ip for link in found if link.status == psutil.CONN_LISTEN}


def test_the_page_is_reachable_from_this_machine_only(project):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with page(project, port) as process:
        end = time.monotonic() + 120
        while not (found := listening(process)) and time.monotonic() < end:
            time.sleep(0.5)
        time.sleep(3)  # for whatever else it may open
        assert found | listening(process) == {"127.0.0.1"}
