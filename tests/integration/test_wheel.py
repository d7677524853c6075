"""The built wheel in a folder of its own: the library works, a verb asks for a checkout."""

import os
import shutil
import subprocess
import sys

import pytest

from tnfdt.study.schema import ROOT

PIP = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The folder that the wheel, built from a copy of the sources, is installed into."""
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("installed")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "tnfdt", source / "tnfdt", ignore=shutil.ignore_patterns("__pycache__"))
    options = ["--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*PIP, "wheel", *options, "-w", source, source], check=True)
    (wheel,) = source.glob("*.whl")
    subprocess.run([*PIP, "install", "--no-deps", "--target", target, wheel], check=True)
    return target


def run(installed, cwd, *arguments):
    env = {**os.environ, "PYTHONPATH": str(installed)}
    return subprocess.run(
        [sys.executable, *arguments], cwd=cwd, env=env, capture_output=True, text=True
    )


def test_the_library_works_and_is_typed(installed, tmp_path):
    code = """
import pathlib, torch, tnfdt
print(pathlib.Path(tnfdt.__file__).parent)
model = tnfdt.create_model("wrn10_1", 10, tensor_norm="paper")
images, labels = torch.rand(2, 3, 8, 8), torch.tensor([0, 1])
print(tnfdt.robust_accuracy(tnfdt.pgd_trajectory(model, images, labels, 0.1, steps=2)))
"""
    done = run(installed, tmp_path, "-c", code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == str(installed / "tnfdt")
    assert (installed / "tnfdt/py.typed").is_file()
    folders = {path.name for path in (ROOT / "tnfdt").iterdir() if (path / "__init__.py").is_file()}
    assert folders <= {path.name for path in (installed / "tnfdt").iterdir()}


@pytest.mark.parametrize(
    "arguments",
    [["status"], ["train", "--study", "demo", "digits/wrn10_1/tn/seed0"], ["ui"], ["plan"]],
    ids=lambda arguments: arguments[0],
)
def test_a_verb_outside_of_a_checkout_says_that_it_needs_one(installed, tmp_path, arguments):
    done = run(installed, tmp_path, "-m", "tnfdt", *arguments)
    assert done.returncode == 2
    assert done.stderr.startswith("tnfdt: this command needs a checkout")
    assert done.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_help_and_version_need_no_checkout(installed, tmp_path):
    assert run(installed, tmp_path, "-m", "tnfdt", "--help").returncode == 0
    assert run(installed, tmp_path, "-m", "tnfdt", "--version").stdout.startswith("tnfdt 0.")
