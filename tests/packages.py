"""The system packages that some tests need: whether they are here, and how they get here.

    python -m tests.packages    installs what is missing, where that is allowed

`make test` calls it. Where it may not install anything, tests marked `needs("…")` are skipped,
and the last line of the run has the command that installs the rest. With CI=true they fail.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple

SLURM = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "squeue", "scontrol", "scancel")


class Component(NamedTuple):
    """What some tests need, and Debian's packages that have it."""

    packages: tuple[str, ...]
    is_here: Callable[[], bool]


def which(name: str) -> str | None:
    """The path of a program; daemons lie where an ordinary user's PATH does not lead."""
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


def _has_latex() -> bool:
    styles = ["geometry.sty", "multirow.sty", "caption.sty"]
    return bool(which("pdflatex")) and _succeeds(["kpsewhich", *styles])


def _succeeds(command: list[str]) -> bool:
    return shutil.which(command[0]) is not None and (
        subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode
        == 0
    )


COMPONENTS = {
    "fashion-mnist": Component(
        ("dataset-fashion-mnist",), Path("/usr/share/datasets/fashion-mnist").is_dir
    ),
    "latex": Component(("texlive-latex-extra",), _has_latex),
    "chromium": Component(("chromium",), lambda: bool(which("chromium"))),
    "slurm": Component(("slurm-wlm", "munge"), lambda: all(map(which, SLURM))),
}


@cache
def is_here(name: str) -> bool:
    return COMPONENTS[name].is_here()


def command(names: Iterable[str]) -> str:
    """What a user with the right to do so types to install these components."""
    packages = (package for name in names for package in COMPONENTS[name].packages)
    return f"sudo apt-get install --no-install-recommends {' '.join(packages)}"


def missing() -> list[str]:
    return [name for name in COMPONENTS if not is_here(name)]


def _rights() -> list[str] | None:
    """What a command that installs packages starts with; None where we may not install."""
    if not shutil.which("apt-get"):
        return None
    if os.geteuid() == 0:
        return []
    return ["sudo", "-n"] if _succeeds(["sudo", "-n", "true"]) else None


def install(names: list[str], rights: list[str]) -> None:
    """Each by itself, so that one that cannot be had does not keep the others away."""
    apt = [*rights, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq"]
    subprocess.run([*apt, "update"], capture_output=True)
    for name in names:
        options = ("install", "-y", "--no-install-recommends", *COMPONENTS[name].packages)
        done = subprocess.run([*apt, *options], capture_output=True, text=True)
        if done.returncode:
            print(*done.stderr.strip().splitlines()[-1:], file=sys.stderr)
    is_here.cache_clear()


def main() -> None:
    absent = missing()
    rights = _rights()
    if absent and rights is not None:
        packages = [package for name in absent for package in COMPONENTS[name].packages]
        print(f"installing {', '.join(packages)} for the tests, once", flush=True)
        install(absent, rights)
    if left := missing():
        why = "no right to install packages" if rights is None else "apt-get failed"
        print(f"the tests go on without {', '.join(left)}: {why}", file=sys.stderr)


if __name__ == "__main__":
    main()
