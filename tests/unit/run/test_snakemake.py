"""What the Snakefile asks the package."""

import re
import subprocess
import sys
from types import SimpleNamespace

import pytest

from tnfdt import devices
from tnfdt.run.snakemake import at_once, end, limit_gpus, missing, one_of
from tnfdt.study.machine import load_machine
from tnfdt.study.study import load_study

WORDS = {
    "seeds": [str(seed) for seed in range(0, 2000, 3)],
    "epsilons": ["0.1", "0.01", "0.001", "1e-05"],
    "methods": ["tn", "tn_fdt", "fdt", "vanilla", "ov", "t-n", "tn.fdt"],
    "one": ["c10"],
}


@pytest.mark.parametrize("words", WORDS.values(), ids=WORDS.keys())
def test_a_constraint_admits_the_studys_values_and_nothing_else(words):
    pattern = re.compile(one_of(words))
    letters = sorted(set("".join(words)))
    assert all(pattern.fullmatch(word) for word in words)
    near = {word[:-1] for word in words} | {word + letter for word in words for letter in letters}
    near |= {word[:-1] + letter for word in words for letter in letters} | {"", "x"}
    assert not [word for word in near - set(words) if pattern.fullmatch(word)]


def test_a_constraint_of_many_seeds_is_short():
    assert len(one_of(map(str, range(10_000)))) < 200


@pytest.mark.parametrize(
    ("there", "made", "asked"),
    [("ab", True, []), ("ab", False, []), ("a", True, ["b"]), ("b", False, ["a"]),
     ("", True, ["a"]), ("", False, [])],
)  # fmt: skip
def test_a_job_is_asked_for_what_it_lost(tmp_path, there, made, asked):
    for name in there:
        (tmp_path / name).touch()
    files = [str(tmp_path / name) for name in "ab"]
    assert list(missing([files], made=made)) == [str(tmp_path / name) for name in asked]


class PretendedWorkflow:
    """What Snakemake's workflow knows while the Snakefile is read."""

    is_main_process, local_exec, cores = True, True, 8

    def __init__(self, **resources):
        self.global_resources = {}
        for name, value in resources.items():
            self.register_resource(name, value)

    def register_resource(self, name, value):
        self.global_resources[name] = SimpleNamespace(value=value)


@pytest.fixture
def machine(monkeypatch):
    monkeypatch.setattr(devices, "_gpus_of_driver", lambda: 3)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return SimpleNamespace(device="auto", gpu_slots=2, threads=1)


def test_all_gpus_are_used_unless_the_command_line_says_how_many(machine):
    for workflow, jobs in ((PretendedWorkflow(), 6), (PretendedWorkflow(gpu=2), 2)):
        limit_gpus(workflow, machine)
        assert at_once(workflow, machine) == jobs
    machine.threads = 2
    workflow = PretendedWorkflow(gpu=6)
    assert at_once(workflow, machine) == 4
    machine.device = "cpu"
    assert at_once(workflow, machine) == 4


@pytest.mark.parametrize("key", ["is_main_process", "local_exec"])
def test_the_gpus_of_a_cluster_are_not_ours_to_count(machine, key):
    workflow = PretendedWorkflow()
    setattr(workflow, key, False)
    limit_gpus(workflow, machine)
    assert workflow.global_resources == {}


def test_the_last_line_of_a_run_says_what_to_open_first(tmp_path, monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    study = load_study("demo")
    machine = load_machine(overrides={"results_dir": str(tmp_path), "tracking_uri": "none"})
    assert "open first" not in end(machine, study, failed=False)  # such as the target data
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo" / "report.html").touch()
    last = end(machine, study, failed=False).splitlines()[-1]
    assert last == f"open first: {tmp_path}/demo/report.html"
    assert "open first" not in end(machine, study, failed=True)


def test_snakemake_reads_it_without_torch():
    """It would be 200 MiB and two seconds of every Snakemake, and of each job on a cluster."""
    code = "import sys, tnfdt.run.snakemake, tnfdt.run.slurm; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "False", done.stderr
