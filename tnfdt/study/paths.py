"""Every path under results/, spelled here and nowhere else.

A cell of wildcards, `Cell("{dataset}", …)`, gives the patterns that Snakemake's rules use.
"""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tnfdt.study.schema import UserError

WEIGHTS, RECORD, HISTORY, CLEAN = "model.safetensors", "record.json", "history.csv", "clean.npz"
TRAIN_FILES = (WEIGHTS, RECORD, HISTORY, CLEAN)
BEST_WEIGHTS, BEST_CLEAN = "best.safetensors", "best.npz"  # where the best epoch is kept as well
JOURNAL, CHECKPOINT, LOCK = "journal.jsonl", "checkpoint.pt", ".lock"  # of a training under way
MANIFEST = "manifest.json"
DATA_FILES = (MANIFEST, "train_x.npy", "train_y.npy", "test_x.npy", "test_y.npy")
PARTIAL = ".partial"  # ends the file of an attack or an audit under way
CALIBRATION = "calibration.json"  # the speed of this machine's devices, beside all studies
AUDIT_RECORD, AUDIT_ARRAY = AUDIT_FILES = ("audit.json", "audit.npz")
NO_STUDIES = ("mlflow-artifacts",)  # folders of results/ that are none
NO_GRIDS = (
    "audit", "cells", "claims", "comparison", "distances", "evidence", "labs", "multiverse",
    "significance", "sources", "summary", "tables", "texts",
)  # fmt: skip
"""Names of files in tables/ that no grid of a study can have."""


class Cell(NamedTuple):
    """One training: a row of a table with one seed."""

    dataset: str
    model: str
    method: str
    seed: int

    @property
    def path(self) -> str:
        return f"{self.row}/seed{self.seed}"

    @property
    def row(self) -> str:
        """What the seeds of a table's row share: dataset/model/method."""
        return f"{self.dataset}/{self.model}/{self.method}"


def format_epsilon(epsilon: float) -> str:
    """How an epsilon is written in file names: 0.1, 0.0001."""
    return f"{epsilon:g}"


def epsilon_stem(epsilon: float | str) -> str:
    """The file name of an attack without its suffix: eps0.1."""
    return f"eps{epsilon if isinstance(epsilon, str) else format_epsilon(epsilon)}"


def attack_job(cell: Cell, epsilon: float | str) -> str:
    """The name of an attack among the logs."""
    return f"{cell.path}/{epsilon_stem(epsilon)}"


def attack_names(epsilon: float | str) -> tuple[str, str]:
    """The names of an attack's record and array."""
    return f"{epsilon_stem(epsilon)}.json", f"{epsilon_stem(epsilon)}.npz"


def array_of(record: Path) -> Path:
    """The arrays beside the record of an attack or an audit."""
    return record.with_suffix(".npz")


def parse_path(text: str) -> Cell:
    """A cell from its path, of whatever study: dataset/model/method/seed0."""
    parts = text.strip("/").split("/")
    if len(parts) != 4 or not re.fullmatch(r"seed[0-9]{1,10}", parts[3]):
        raise UserError(f"cell {text!r}: expected a path like digits/wrn10_1/tn/seed0")
    return Cell(parts[0], parts[1], parts[2], int(parts[3][4:]))


@dataclass(frozen=True)
class StudyPaths:
    """The files of one study; `folder` is results/{study}."""

    folder: Path

    def data(self, dataset: str) -> Path:
        return self.folder / "data" / dataset

    def manifest(self, dataset: str) -> Path:
        return self.data(dataset) / MANIFEST

    def train(self, cell: Cell) -> Path:
        return self.folder / "train" / cell.path

    def weights(self, cell: Cell) -> Path:
        return self.train(cell) / WEIGHTS

    def record(self, cell: Cell) -> Path:
        return self.train(cell) / RECORD

    def history(self, cell: Cell) -> Path:
        return self.train(cell) / HISTORY

    def clean(self, cell: Cell) -> Path:
        return self.train(cell) / CLEAN

    def attack(self, cell: Cell) -> Path:
        return self.folder / "attack" / cell.path

    def attack_record(self, cell: Cell, epsilon: float | str) -> Path:
        return self.attack(cell) / attack_names(epsilon)[0]

    def attack_records(self, cell: Cell) -> list[Path]:
        """Those that are there, in order."""
        return sorted(self.attack(cell).glob(attack_names("*")[0]))

    def attack_array(self, cell: Cell, epsilon: float | str) -> Path:
        return self.attack(cell) / attack_names(epsilon)[1]

    @property
    def audits(self) -> Path:
        return self.folder / "audit"

    def audit(self, cell: Cell) -> Path:
        return self.audits / cell.path

    def audit_record(self, cell: Cell) -> Path:
        return self.audit(cell) / AUDIT_RECORD

    def audit_array(self, cell: Cell) -> Path:
        return self.audit(cell) / AUDIT_ARRAY

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    def log(self, stage: str, name: str) -> Path:
        """The log of a job, `name` being what it makes: a dataset, a cell, an attack_job."""
        return self.logs / stage / f"{name}.log"

    def benchmark(self, stage: str, name: str) -> Path:
        """What Snakemake measures of a job."""
        return self.folder / "benchmarks" / stage / f"{name}.tsv"

    @property
    def tables(self) -> Path:
        return self.folder / "tables"

    @property
    def figures(self) -> Path:
        return self.folder / "figures"

    @property
    def ledger(self) -> Path:
        """The numbers of every finished cell, for `tnfdt verify`."""
        return self.tables / "cells.json"

    @property
    def sources(self) -> Path:
        """The files that the tables were made from, with their checksums."""
        return self.tables / "sources.csv"

    @property
    def claims(self) -> Path:
        """The verdicts, for programs."""
        return self.tables / "claims.json"

    @property
    def activations(self) -> Path:
        """What was counted in the activations of trained networks."""
        return self.folder / "activations.json"

    @property
    def report(self) -> Path:
        return self.folder / "report.html"

    @property
    def summary(self) -> Path:
        return self.folder / "summary.md"

    @property
    def evidence(self) -> Path:
        return self.folder / "evidence.zip"

    @property
    def runs(self) -> Path:
        """Which MLflow run is whose, by cell; written by tracking alone."""
        return self.folder / "mlflow.csv"

    @property
    def tracking_lock(self) -> Path:
        """Held by the one process that brings MLflow in line."""
        return self.folder / ".mlflow.lock"

    @property
    def looks(self) -> Path:
        """Which look a study has come to, and how often its results were seen."""
        return self.folder / "looks.json"

    @property
    def unfinished(self) -> Path:
        """There while a run of Snakemake has not ended."""
        return self.folder / ".unfinished"

    def all_records(self) -> set[Path]:
        """Every file that has the name of a record, wherever it was copied to."""
        found = {*self.folder.glob("train/**/record*.json")}
        return found | {*self.folder.glob("attack/**/eps*.json")}

    def trained(self) -> list[Cell]:
        """The cells that have a folder under train/, in order."""
        found = []
        for path in sorted(self.folder.glob("train/*/*/*/seed*")):
            with contextlib.suppress(UserError):
                found.append(parse_path("/".join(path.parts[-4:])))
        return found
