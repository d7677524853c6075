"""Without a system package the run is green and says what to install; in CI it fails."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import packages
from tnfdt.study.schema import ROOT


def without_programs(folder: Path, *command: str, **settings: str) -> subprocess.CompletedProcess:
    """Run Python with nothing in its PATH but what the test has put into `folder`."""
    env = {**os.environ, "CI": "", "PATH": str(folder), **settings}
    return subprocess.run(
        [sys.executable, *command], cwd=ROOT, env=env, capture_output=True, text=True
    )


PYTEST = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/integration/test_latex.py")


def test_a_missing_component_is_skipped_and_counted(tmp_path):
    done = without_programs(tmp_path, *PYTEST)
    assert done.returncode == 0, done.stdout
    line = f"skipped because latex is missing; to run them too: {packages.command(['latex'])}"
    assert [text for text in done.stdout.splitlines() if text.endswith(line)]


def test_a_missing_component_is_a_failure_in_ci(tmp_path):
    done = without_programs(tmp_path, *PYTEST, CI="true")
    assert done.returncode == 1
    assert "latex is not installed: sudo apt-get install" in done.stdout
    assert "skipped" not in done.stdout


def test_everything_marked_is_known():
    texts = [path.read_text() for path in (ROOT / "tests").rglob("test_*.py")]
    for name in packages.COMPONENTS:
        assert any(f'mark.needs("{name}")' in text for text in texts)


@pytest.mark.skipif(os.geteuid() != 0, reason="asks for what root would do")
def test_root_installs_what_is_missing_and_says_so(tmp_path):
    for name, text in {"apt-get": 'echo "$@" >> "$CALLS"', "env": 'shift; exec "$@"'}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    calls = tmp_path / "calls"
    done = without_programs(tmp_path, "-m", "tests.packages", CALLS=str(calls))
    assert done.stdout.count("\n") == 1
    assert "installing" in done.stdout
    assert "texlive-latex-extra" in done.stdout
    assert "-qq install -y --no-install-recommends texlive-latex-extra" in calls.read_text()
    assert "apt-get failed" in done.stderr  # as this one installs nothing
    assert done.returncode == 0
