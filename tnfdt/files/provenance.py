"""Where a result came from: commit, versions and hardware, recorded with every result."""

from __future__ import annotations

import contextlib
import platform
import re
import subprocess
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from tnfdt.study.schema import ROOT

_UNKNOWN, _CHANGED = "unknown", "+changes"  # no git; behind the commit of a tree that differs
_PACKAGES = (
    "tnfdt", "torch", "torchvision", "timm", "foolbox", "mlflow", "snakemake", "scipy", "numpy",
)  # fmt: skip


@cache
def provenance() -> dict[str, Any]:
    """Commit, versions and hardware of this process."""
    return {"commit": _commit(), "versions": _versions(), "hardware": _hardware()}


def _commit() -> str:
    """The commit of the code that runs, with '+changes' if the tree differs from it."""
    head = _git("rev-parse", "HEAD")
    changed = _git("status", "--porcelain", "--untracked-files=no", "--", "tnfdt", "workflow")
    return (head or _UNKNOWN) + (_CHANGED if changed else "")


def is_exact(commit: str) -> bool:
    """Whether a recorded commit is all of the code that ran."""
    return commit != _UNKNOWN and not commit.endswith(_CHANGED)


def _git(*args: str) -> str:
    command = ["git", "-C", str(ROOT), *args]
    try:
        return subprocess.run(command, capture_output=True, text=True).stdout.strip()
    except OSError:
        return ""


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return found


def _hardware() -> dict[str, Any]:
    import psutil

    return {
        "machine": platform.machine(),
        "system": f"{platform.system()} {platform.release()}",
        "cpu": _cpu_name(),
        "cores": psutil.cpu_count(logical=True),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
    }


def _cpu_name() -> str:
    """Name and numbers of the processor: virtual machines call many generations by one name."""
    with contextlib.suppress(OSError):
        text = Path("/proc/cpuinfo").read_text()
        facts = dict(re.findall(r"^(.+?)\s*: (.+)$", text, re.MULTILINE))
        if name := facts.get("model name"):
            numbers = (facts.get(key, "?") for key in ("cpu family", "model", "stepping"))
            return f"{name} {'/'.join(numbers)}"
    return platform.processor() or "unknown"
