"""The examples run as they stand, quickly, and do what they say."""

import difflib
import re
import resource
import subprocess
import sys

import pytest

from tests.integration.conftest import environment
from tnfdt.study.schema import ROOT

EXAMPLES = ROOT / "examples"


def cpu_seconds() -> float:
    """Of the processes that have ended: unlike the clock, not a matter of who else works here."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime


def run(name: str, *args: str) -> str:
    begin = cpu_seconds()
    done = subprocess.run(
        [sys.executable, EXAMPLES / f"{name}.py", *args],
        env=environment() | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert cpu_seconds() - begin < 30
    return done.stdout


@pytest.mark.parametrize("name", ["plain_pytorch", "with_tn_and_fdt"])
def test_a_network_learns_the_digits(name):
    found = re.search(r"accuracy ([\d.]+) %", run(name))
    assert found is not None
    assert float(found[1]) > 90


def test_tn_and_fdt_are_a_few_lines():
    texts = [(EXAMPLES / f"{name}.py").read_text() for name in ("plain_pytorch", "with_tn_and_fdt")]
    plain, ours = (text.split('"""', 2)[2].splitlines() for text in texts)
    changed = [line for line in difflib.ndiff(plain, ours) if line[:2] in ("+ ", "- ")]
    assert len([line for line in changed if line[2:].strip()]) <= 8


@pytest.mark.parametrize("name", ["plain_pytorch", "with_tn_and_fdt"])
def test_any_model_is_attacked_and_gets_a_badge(name):
    out = run("attack_your_model", name)
    robust = [float(value) for value in re.findall(r"robust accuracy ([\d.]+) %", out)]
    survive = [float(value) for value in re.findall(r"([\d.]+) % of the images", out)]
    assert len(robust) == len(survive) == 2
    assert robust[0] < robust[1]  # the larger radius comes first
    assert all(left <= mean for left, mean in zip(survive, robust, strict=True))
    badge = out.rstrip().splitlines()[-1].removeprefix("badge: ")
    assert badge == "sound" if name == "plain_pytorch" else badge
