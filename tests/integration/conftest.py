"""A small study in a folder of its own, run by the real Snakemake."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tnfdt.study.schema import ROOT

BIN = Path(sys.executable).parent

SMALL = {
    "grid": {
        "table1": {"datasets": ["digits"], "models": ["wrn10_1"], "methods": ["vanilla", "tn_fdt"]}
    },
    "seeds": [0],
    "methods": {
        "vanilla": {},
        "tn_fdt": {"tensor_norm": True, "blend": "harmonic", "target": "distribution"},
    },
    "datasets": {"digits": {"augment": {"shift": 1}}},
    "limit": {"train": 300, "test": 50},
    "training": {"epochs": 2, "lr_drop_every": 1},
    "attack": {"epsilons": [0.1, 0.01], "steps": 5, "limit": 20},
    "audit": {"limit": 10, "restarts": 1},
}


def environment() -> dict[str, str]:
    """What the commands of this installation need to find each other."""
    return {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}


class Project:
    """A working folder with one study file; `snakemake` and `tnfdt` run in it.

    `code` is the project they are of: this one, or a copy that a test may change.
    """

    def __init__(self, folder: Path, name: str = "small", code: Path = ROOT) -> None:
        self.folder, self.name, self.code = folder, name, code
        self.study = folder / f"{name}.yaml"
        self.write(SMALL)

    def write(self, study: dict) -> None:
        self.study.write_text(yaml.safe_dump(study))

    @property
    def results(self) -> Path:
        return self.folder / "results" / self.name

    def run(self, *command: str, check: bool = True, **options) -> subprocess.CompletedProcess:
        env = environment() | {"PYTHONPATH": str(self.code)} | options.pop("env", {})
        done = subprocess.run(
            command, cwd=self.folder, env=env, capture_output=True, text=True, **options
        )
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done

    def tnfdt(self, verb: str, *args: str, **options) -> subprocess.CompletedProcess:
        study = () if verb in ("verify", "ui") else ("--study", self.study.name)
        return self.run("tnfdt", verb, *study, *args, **options)

    def snakemake_command(self, *args: str, study: str | None = None, **settings) -> list[str]:
        code = self.code
        where = ("-s", str(code / "Snakefile"), "--configfile", str(code / "config/config.yaml"))
        profile = ("--workflow-profile", str(code / "profiles/default"))
        settings = {"study": study or self.study.name, **settings}
        config = ("--config", *(f"{key}={value}" for key, value in settings.items()))
        return ["snakemake", "--cores", "2", *where, *profile, *args, *config]

    def snakemake(self, *args: str, study: str | None = None, **options):
        return self.run(*self.snakemake_command(*args, study=study), **options)

    def planned(self, *targets: str, **settings: str) -> dict[str, int]:
        """How many jobs of each rule a dry run plans."""
        command = self.snakemake_command(*targets, "--dry-run", "--quiet", "rules", **settings)
        done = self.run(*command)
        return job_counts(done.stdout + done.stderr)


def job_counts(text: str) -> dict[str, int]:
    """The table 'job count' of Snakemake's output."""
    rows = (line.split() for line in text.splitlines())
    return {row[0]: int(row[1]) for row in rows if len(row) == 2 and row[1].isdigit()}


@pytest.fixture
def project(tmp_path):
    return Project(tmp_path)


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """A small study that has been run to the end once; tests must not change it."""
    project = Project(tmp_path_factory.mktemp("finished"))
    project.snakemake()
    return project
