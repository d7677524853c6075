"""All GPUs by default: the real Snakemake on a machine with three pretended ones."""

import subprocess
import sys

import pytest

SNAKEFILE = """
from types import SimpleNamespace
from tnfdt import devices
from tnfdt.run import snakemake as tnfdt_workflow

devices._gpus_of_driver = lambda: 3
machine = SimpleNamespace(device="auto", gpu_slots=1, threads=1)
tnfdt_workflow.limit_gpus(workflow, machine)

rule all:
    input: expand("{number}.txt", number=range(4))

rule job:
    output: "{number}.txt"
    resources: gpu=tnfdt_workflow.gpus(machine)
    shell: "(date +%s.%N; sleep 1; date +%s.%N) > {output}"
"""


@pytest.mark.parametrize(("options", "at_once"), [([], 2), (["--resources", "gpu=1"], 1)])
def test_a_run_uses_all_gpus_that_it_sees(tmp_path, monkeypatch, options, at_once):
    """As many jobs at a time as there are visible GPUs; the command line wins."""
    (tmp_path / "Snakefile").write_text(SNAKEFILE)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,2")
    command = [sys.executable, "-m", "snakemake", "--cores", "4", *options]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    times = [tuple(map(float, p.read_text().split())) for p in tmp_path.glob("*.txt")]
    overlaps = [sum(a <= begin < b for a, b in times) for begin, _ in times]
    assert len(times) == 4
    assert max(overlaps) == at_once
