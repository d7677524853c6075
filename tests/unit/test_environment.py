"""The lock, pyproject.toml and environment.yml describe one and the same environment."""

import json
import re
import shutil
import subprocess
import tomllib
from importlib.metadata import distribution, version

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tnfdt.study.schema import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LOCK = dict(line.split("==") for line in (ROOT / "requirements.lock").read_text().split())
LOCKED = {canonicalize_name(name): pin for name, pin in LOCK.items()}
EXTRAS = PROJECT["optional-dependencies"]
WANTED = PROJECT["dependencies"] + [item for extra in EXTRAS.values() for item in extra]

other_torch = pytest.mark.skipif(
    version("torch").partition("+")[0] != LOCKED["torch"], reason="made with make venv TORCH=…"
)


def test_the_lock_is_plain_pins():
    for line in (ROOT / "requirements.lock").read_text().splitlines():
        assert re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.!_-]+", line), line


def test_the_library_alone_needs_torch_and_numpy():
    assert {Requirement(text).name for text in PROJECT["dependencies"]} == {"torch", "numpy"}


@pytest.mark.parametrize("text", WANTED)
def test_every_dependency_is_locked_at_a_version_it_allows(text):
    wanted = Requirement(text)
    assert wanted.specifier.contains(LOCKED[canonicalize_name(wanted.name)])


@other_torch
def test_the_lock_is_closed():
    """Whatever a locked package needs on this platform is locked too."""
    for name in LOCKED:
        for text in distribution(name).requires or []:
            needed = Requirement(text)
            if needed.marker is None or needed.marker.evaluate({"extra": ""}):
                assert canonicalize_name(needed.name) in LOCKED, f"{name} needs {needed}"


@other_torch
def test_this_environment_is_the_locked_one():
    assert {name: version(name) for name in LOCKED} == LOCKED


def test_conda_installs_the_same_lock():
    conda = yaml.safe_load((ROOT / "environment.yml").read_text())
    pip = next(item["pip"] for item in conda["dependencies"] if isinstance(item, dict))
    assert "-r requirements.lock" in pip
    python = next(item for item in conda["dependencies"] if str(item).startswith("python="))
    assert Requirement("python" + PROJECT["requires-python"]).specifier.contains(python[7:])


def test_the_torch_that_breaks_torchvision_is_not_taken():
    assert LOCKED["torch"] != "2.13.0"


PRETENDED_PYTHON = """#!/bin/sh
case "$*" in
  "-m venv .venv") mkdir -p .venv/bin && cp "$0" .venv/bin/python ;;
  *"pip install"*) echo "$@" >> pip.log ;;
esac
"""


def test_another_torch_leaves_the_rest_of_the_lock_unchanged(tmp_path):
    """`make venv TORCH=…` with a Python that only notes what pip is asked for."""
    for name in ("Makefile", "requirements.lock", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "python").write_text(PRETENDED_PYTHON)
    (tmp_path / "python").chmod(0o755)

    def make(*options):
        command = ["make", "venv", "PYTHON=./python", *options]
        subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
        chosen = (tmp_path / ".venv/chosen.lock").read_text().split()
        return (tmp_path / "pip.log").read_text().splitlines(), chosen

    calls, chosen = make()
    assert len(calls) == 2
    assert dict(line.split("==") for line in chosen) == LOCK
    other = "torch==2.9.1 torchvision==0.24.1"
    calls, chosen = make(f"TORCH={other}")
    assert len(calls) == 4
    assert calls[2].endswith(f"-r .venv/chosen.lock {other}")
    left_out = LOCKED.keys() - {canonicalize_name(line.split("==")[0]) for line in chosen}
    assert {"torch", "torchvision", "triton", "nvidia-cudnn-cu13", "cuda-toolkit"} <= left_out
    assert not [name for name in left_out if not re.match("torch|triton|cuda-|nvidia-[^m]", name)]
    assert len(make()[0]) == 4  # what was chosen stays


def test_codemeta_and_citation_name_the_package_as_it_is():
    meta = json.loads((ROOT / "codemeta.json").read_text())
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    paper = citation["preferred-citation"]["title"]
    assert (meta["name"], meta["version"]) == (PROJECT["name"], PROJECT["version"])
    assert (meta["description"], citation["version"]) == (PROJECT["description"], meta["version"])
    assert meta["license"].rsplit("/", 1)[1] == PROJECT["license"] == citation["license"]
    assert meta["referencePublication"]["name"] == paper
