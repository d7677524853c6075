"""With torch and numpy alone: the library's names work, what needs more says what to install."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, distribution, packages_distributions

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tnfdt.study.schema import ROOT

BLOCKER = """
import json, sys

class Blocker:
    hidden = frozenset(json.loads(sys.argv.pop()))

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.hidden:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocker())
"""
LIBRARY = """
import torch, tnfdt
from torch import nn

model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5))
assert isinstance(tnfdt.insert_tensor_norm(model)[1], tnfdt.ReLUTensorNorm)
images = torch.randint(256, (20, 3, 8, 8), dtype=torch.uint8)
data = tnfdt.FullDistribution(images, torch.arange(20) % 5, 5)
blend = data.batch(4)
assert isinstance(blend, tnfdt.Blend)
logits = model(blend.images)
tnfdt.multi_label_log_loss(logits, blend.targets).backward()
tnfdt.multi_class_log_loss(logits.detach(), blend.dominant)
assert abs(float(tnfdt.harmonic_factors(4).sum()) - 1) < 1e-6
assert tnfdt.tensor_norm(torch.rand(2, 3, 4, 4)).shape == (2, 3, 4, 4)
one = torch.ones(1, 1)
assert tnfdt.robust_accuracy(tnfdt.Trajectory(one > 0, one, one, one, one, one)) == 1
print(*sorted(tnfdt.__all__))
"""


def closure(names: list[str]) -> set[str]:
    """These distributions and all that they need on this platform."""
    found: set[str] = set()
    while names:
        name = canonicalize_name(names.pop())
        if name not in found:
            try:
                wanted = [Requirement(text) for text in distribution(name).requires or []]
            except PackageNotFoundError:
                continue
            found.add(name)
            names += [
                r.name for r in wanted if r.marker is None or r.marker.evaluate({"extra": ""})
            ]
    return found


@pytest.fixture(scope="module")
def hidden() -> list[str]:
    """Every installed module that torch and numpy do not bring along."""
    kept = closure(["torch", "numpy"]) | {"tnfdt"}
    installed = packages_distributions().items()
    return [
        module
        for module, owners in installed
        if not kept & {canonicalize_name(owner) for owner in owners}
    ]


def run(code: str, hidden: list[str]) -> subprocess.CompletedProcess:
    command = [sys.executable, "-c", BLOCKER + code, json.dumps(hidden)]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, capture_output=True, text=True, env=env)


def test_the_hidden_packages_are_those_of_the_harness(hidden):
    assert {"timm", "foolbox", "eagerpy", "torchvision", "pandas", "yaml", "scipy"} <= {*hidden}
    assert not {"torch", "numpy", "tnfdt"} & {*hidden}


def test_torch_and_numpy_are_enough_for_the_library(hidden):
    done = run(LIBRARY, hidden)
    assert done.returncode == 0, done.stderr
    assert {"pgd_trajectory", "create_model", "FullDistribution"} <= {*done.stdout.split()}


@pytest.mark.parametrize(
    ("call", "package"),
    [
        ("tnfdt.create_model('wrn10_1', 10)", "timm"),
        ("tnfdt.create_model('resnet18', 10)", "timm"),
        ("tnfdt.pgd_trajectory(torch.nn.Flatten(), one, one[0, 0, 0].long(), 0.1)", "foolbox"),
    ],
)
def test_what_needs_more_says_in_one_line_what_to_install(hidden, call, package):
    code = f"""
import torch, tnfdt
one = torch.ones(1, 1, 1, 1)
try:
    {call}
except ImportError as error:
    print(error)
"""
    done = run(code, hidden)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 1
    assert package in done.stdout
    assert "pip install 'tnfdt[harness]'" in done.stdout


@pytest.mark.parametrize("arguments", [["status", "--study", "demo"], ["train", "a/b/c/seed0"]])
def test_a_verb_without_the_harness_says_in_one_line_what_to_install(hidden, arguments):
    done = run(f"from tnfdt.cli import main; sys.exit(main({arguments}))", hidden)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "pip install 'tnfdt[harness]'" in done.stderr
