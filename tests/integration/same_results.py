"""Two results folders of one study compared: byte by byte but for what tells time.

What may differ, and why:

| file | left out | why |
|---|---|---|
| record.json and its kept copy, eps*.json, audit.json | `started`; of the metrics `duration_seconds`, `images_per_second`, `cpu_seconds_per_image`, `peak_memory_bytes`, `energy_joules` | when, how long, with how much memory |
| cells.json | the same of each training and attack | the same |
| sources.csv | the checksums of those records | the same |
| claims.json | the claims on time and memory | they judge those measurements |
| claims.md, claims.html, evidence.html, forest figures | all | they show claims.json |
| report.html, summary.md, summary.html | all | they hold times |
| evidence.zip | all | it holds the records |
| looks.json | all | it says what was seen when |
| logs/, benchmarks/, journal.jsonl, mlflow.csv | all | times and run ids |

What was tracked is held against MLflow by the campaign.
Everything else must have the same bytes, and both folders the same files: a temporary file, a
partial file or a checkpoint that was left is a difference.
"""  # noqa: E501

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MEASURED = {
    "duration_seconds", "images_per_second", "cpu_seconds_per_image", "peak_memory_bytes",
    "energy_joules",
}  # fmt: skip
COSTS = {"seconds_per_image", "peak_memory_bytes"}  # evidence of claims on measurements
TIMED = {
    "report.html", "claims.md", "claims.html", "evidence.html", "evidence.zip", "summary.md",
    "summary.html", "looks.json",
}  # fmt: skip
TRACKED = {"journal.jsonl", "mlflow.csv", ".mlflow.lock"}  # MLflow's own check
FOLDERS = {"logs", "benchmarks"}


def differences(made: Path, expected: Path) -> list[str]:
    """What is not the same in two results folders, one line each."""
    ours, theirs = files(made), files(expected)
    missing = [f"{name} is missing" for name in sorted(theirs - ours)]
    left = [f"{name} is left over" for name in sorted(ours - theirs)]
    return [*missing, *left, *_unequal(made, expected, sorted(ours & theirs))]


def files(folder: Path) -> set[str]:
    """The files of a study by their path, but for logs and benchmarks."""
    found = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return {
        path.as_posix()
        for path in found
        if path.parts[0] not in FOLDERS and path.name not in TRACKED
    }


def _unequal(made: Path, expected: Path, names: list[str]) -> Iterator[str]:
    for name in names:
        try:
            if _content(made / name) != _content(expected / name):
                yield f"{name} differs"
        except ValueError as error:
            yield f"{name} cannot be read: {error}"


def _content(path: Path) -> Any:
    """What of a file must be the same."""
    if path.name == "record.json.kept":
        return _untimed(json.loads(path.read_text()))
    if path.name in TIMED or path.stem.startswith("forest"):
        return None
    if path.name == "claims.json":
        return _claims(json.loads(path.read_text()))
    if path.name == "cells.json":
        return _cells(json.loads(path.read_text())["cells"])
    if path.suffix == ".json":
        return _untimed(json.loads(path.read_text()))
    return list(_sources(path)) if path.name == "sources.csv" else path.read_bytes()


def _untimed(record: dict[str, Any]) -> dict[str, Any]:
    metrics = record.get("metrics", {})
    kept = {key: value for key, value in metrics.items() if key not in MEASURED}
    return {**record, "metrics": kept, "started": None}


def _cells(ledger: dict[str, Any]) -> dict[str, Any]:
    return {
        cell: [_untimed(record) for record in (entry["train"], *entry["attacks"])]
        for cell, entry in ledger.items()
    }


def _sources(path: Path) -> Iterator[dict[str, str]]:
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            timed = {"sha256"} if row["file"].endswith(".json") else set()
            yield {key: value for key, value in row.items() if key not in timed}


def _claims(value: dict[str, Any]) -> list[dict[str, Any]]:
    """Without the claims that rest on a measurement of time or memory."""
    kept = [
        claim
        for claim in value["claims"]
        if not COSTS & {row["measure"] for row in claim["evidence"]}
    ]
    assert kept
    return kept
