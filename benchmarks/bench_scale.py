"""Large grids: a dry run and `tnfdt status` on 100, 1,000 and 10,000 cells, four epsilons each.

The rows are processor seconds, memory, and how the time grows when the grid grows tenfold: 10 is
linear. Of the growth the fixed costs (start of Python, imports) are taken away by measuring
differences.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

from benchmarks.ratios import Row
from tnfdt.study.schema import ROOT

CELLS = (100, 1_000, 10_000)
DRY_RUN_SECONDS, DRY_RUN_MIB, STATUS_SECONDS = 40, 1638.4, 3
BIN = Path(sys.executable).parent


def main() -> list[Row]:
    """Measure both on each size, in a folder of their own."""
    with tempfile.TemporaryDirectory(prefix="tnfdt-scale-") as scratch:
        folder = Path(scratch)
        dry = [_dry_run(folder, _study(folder, cells)) for cells in CELLS]
        status = [_status(folder, _study(folder, cells)) for cells in CELLS]
    rows = [
        Row.at_most("dry run of 10,000 cells, processor seconds", dry[-1][0], DRY_RUN_SECONDS),
        Row.at_most("dry run of 10,000 cells, MiB", dry[-1][1], DRY_RUN_MIB),
        Row.at_most("status of 10,000 cells, processor seconds", status[-1], STATUS_SECONDS),
    ]
    for name, times in (("dry run", [item[0] for item in dry]), ("status", status)):
        growth = (times[2] - times[1]) / max(times[1] - times[0], 1e-3)
        rows.append(Row.at_most(f"{name}, growth from 1,000 to 10,000 cells", growth, 15))
        shown = ", ".join(
            f"{cells:,}: {taken:.1f} s" for cells, taken in zip(CELLS, times, strict=True)
        )
        print(f"{name}: {shown}", file=sys.stderr)
    return rows


def _study(folder: Path, cells: int) -> Path:
    """The demo's study with as many seeds as make so many cells."""
    study = yaml.safe_load((ROOT / "config/studies/demo.yaml").read_text())
    study |= {"seeds": list(range(cells // 5)), "audit": {"include": False}}
    path = folder / f"grid{cells}.yaml"
    path.write_text(yaml.safe_dump(study))
    return path


def _dry_run(folder: Path, study: Path) -> tuple[float, float]:
    """Processor seconds and MiB of a dry run by the real Snakemake."""
    profile = str(ROOT / "profiles/default")
    files = ["-s", str(ROOT / "Snakefile"), "--configfile", str(ROOT / "config/config.yaml")]
    options = ["--workflow-profile", profile, "--dry-run", "--quiet"]
    command = [str(BIN / "snakemake"), *files, *options, "--config", f"study={study}"]
    return _run(command, folder)


def _status(folder: Path, study: Path) -> float:
    """Processor seconds of `tnfdt status` on a grid of which a half is done, with all its files."""
    results = folder / "results" / study.stem
    cells = int(study.stem.removeprefix("grid"))
    for method in ("vanilla", "ov", "fdt", "tn", "tn_fdt"):
        for seed in range(0, cells // 5, 2):
            _write_cell(results, f"digits/wrn10_1/{method}/seed{seed}")
    return _run([str(BIN / "tnfdt"), "status", "--study", str(study)], folder)[0]


def _write_cell(results: Path, cell: str) -> None:
    train, attack = results / "train" / cell, results / "attack" / cell
    for path in (train, attack, results / "logs/train" / Path(cell).parent):
        path.mkdir(parents=True, exist_ok=True)
    for name in ("record.json", "model.safetensors", "history.csv", "journal.jsonl", ".lock"):
        (train / name).touch()
    for epsilon in ("0.1", "0.01", "0.001", "0.0001"):
        (attack / f"eps{epsilon}.json").touch()
    (results / "logs/train" / f"{cell}.log").touch()


def _run(command: list[str], folder: Path) -> tuple[float, float]:
    """Processor seconds and peak memory in MiB of a command: other jobs do not count."""
    process = subprocess.Popen(
        command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    _, code, usage = os.wait4(process.pid, 0)
    if code:
        raise RuntimeError(f"{' '.join(command)} failed with {os.waitstatus_to_exitcode(code)}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024
