"""The settings of a machine: config/config.yaml with what the command line overrides."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tnfdt.study.paths import StudyPaths
from tnfdt.study.schema import ROOT, UserError, read_yaml, validated


@dataclass(frozen=True, kw_only=True)
class Machine:
    """The settings of a machine, from config/config.yaml and the command line."""

    study: str
    device: str
    precision: str
    compile: bool
    threads: int
    gpu_slots: int
    data_dir: str
    sample_dir: str
    results_dir: str
    tracking_uri: str
    checkpoint_minutes: float
    time_limit: int

    def paths(self, study: str) -> StudyPaths:
        """Where the results of a study are, by its name."""
        return StudyPaths(Path(self.results_dir, study))


def load_machine(path: Path | None = None, overrides: dict[str, Any] | None = None) -> Machine:
    """The machine's settings from config/config.yaml, with single keys overridden."""
    path = path or ROOT / "config/config.yaml"
    return machine_from_dict({**read_yaml(path), **(overrides or {})}, where=str(path))


def machine_from_dict(config: dict[str, Any], where: str = "config") -> Machine:
    """The machine's settings from a dictionary, such as Snakemake's `config`."""
    machine = Machine(**validated(config, "config", where))
    for key in ("data_dir", "results_dir"):
        _check_folder(f"{where}: {key}", Path(getattr(machine, key)))
    return machine


def _check_folder(key: str, path: Path) -> None:
    """Nothing but a folder stands in the way of one that will be made."""
    for place in (path, *path.parents):
        try:
            found = place.lstat() and place.is_dir()
        except FileNotFoundError:
            continue
        except OSError as error:
            raise UserError(f"{key}: {place}: {error.strerror}; name another folder") from None
        if not found:
            raise UserError(f"{key}: {place} is not a folder; move it away or name another folder")
        return


def tracking_uri(machine: Machine) -> str | None:
    """Where MLflow is: MLFLOW_TRACKING_URI, else the machine's setting; None if it is off."""
    uri = machine.tracking_uri
    if given := os.environ.get("MLFLOW_TRACKING_URI"):
        uri = validated({"tracking_uri": given}, "config", "MLFLOW_TRACKING_URI")["tracking_uri"]
    return None if uri == "none" else uri
