"""Run one recorded cell again and hold every number against the recorded one.

Needs the records of the cell, or the study's ledger, and its data; its weights only where the
attacks alone are run again. The records may be a folder's or a bundle's.
"""

from __future__ import annotations

import math
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from tnfdt.bundle.rebuild import opened
from tnfdt.evidence import ledger
from tnfdt.files.history import read_history
from tnfdt.files.provenance import provenance
from tnfdt.files.records import Record, identity, is_number
from tnfdt.study.machine import Machine
from tnfdt.study.paths import Cell, StudyPaths, parse_path
from tnfdt.study.schema import UserError
from tnfdt.study.study import Study, load_study

IDENTICAL, ROUNDING, DIFFERENT = "identical", "within rounding", "different"
RELATIVE = 1e-5  # less than one test image makes in an accuracy
_ABSOLUTE = 1e-9
_CLOCKS = (
    "images_per_second", "cpu_seconds_per_image", "peak_memory_bytes", "energy_joules",
    "duration_seconds", "seconds", "time",
)  # fmt: skip


_SETTINGS = {
    "model", "stem", "tensor_norm", "mean", "augment", "blend", "seed", "training", "precision",
    "compile",
}  # fmt: skip
_ATTACK_SETTINGS = {"steps", "rel_stepsize", "random_start", "batch_size", "limit"}
_OTHER = "it is damaged or of another version: train it again"


class Compared(NamedTuple):
    """One number, or one row of numbers, recorded and made again."""

    name: str
    recorded: Any
    again: Any
    verdict: str


def run_bundle(path: Path, cell: str, machine: Machine, *, attack_only: bool = False) -> int:
    """As `run`, of a cell in a bundle; data of the same study that is prepared here is used."""
    with opened(path, weights=attack_only) as material:
        results = material.results
        prepared = machine.paths(results.study.name)
        return run(
            results.folder,
            cell,
            machine,
            attack_only=attack_only,
            prepared=prepared,
            study=results.study,
        )


def run(
    study_dir: Path,
    cell: str,
    machine: Machine,
    *,
    attack_only: bool = False,
    prepared: StudyPaths | None = None,
    study: Study | None = None,
) -> int:
    """Re-run a cell in a temporary folder; 0 if every number comes out the same, else 1.

    attack_only: attack the weights that are there instead of training again. prepared: where
    prepared data may be, by default in the study's folder. study: by default the file of that name.
    """
    if not study_dir.is_dir():
        raise UserError(f"{study_dir} is not a folder; give one like results/demo")
    which = parse_path(cell)
    if study is None and "." in which.method:  # a reading's cell: whose training has it?
        study = _study_of(study_dir, machine)
    network = study.trained_as(which) if study else which
    recorded = ledger.read_cell(study_dir, which, network)
    _check_complete(study_dir, which, recorded)
    if attack_only and not recorded["attacks"]:
        raise UserError(f"{study_dir}: {which.path} has no attack yet; verify its training too")
    weights = _weights(StudyPaths(study_dir), network) if attack_only else None
    with tempfile.TemporaryDirectory(prefix="tnfdt-verify-") as scratch:
        prepared = prepared or StudyPaths(study_dir)
        data, found = _data(prepared, which, machine, Path(scratch, "data"), study)
        expected = recorded["train"]["dataset_fingerprint"]
        if found != expected:
            print(
                f"{which.path}: {DIFFERENT}: these are not the images that it was trained on "
                f"(fingerprint {found}, was {expected})"
            )
            return 1
        name = study_dir.resolve().name
        again = rerun(name, which, recorded, data, machine, Path(scratch), weights)
    rows = list(compare(recorded, again))
    print(report(which, rows, recorded["train"], again.get("train")))
    return int(any(row.verdict == DIFFERENT for row in rows))


def _weights(paths: StudyPaths, cell: Cell) -> Path:
    """The folder of a training whose weights are there."""
    path = paths.weights(cell)
    if not path.is_file():
        raise UserError(
            f"{path} is not there; verify without --attack-only, or ask for a bundle that was "
            "packed with --weights"
        )
    return path.parent


def _check_complete(folder: Path, cell: Cell, recorded: Any) -> None:
    """The record has what a training and its attacks are started with."""
    where = f"{folder}: record.json of {cell.path}"
    try:
        train, attacks = recorded["train"], recorded["attacks"]
        _ = (train["dataset_fingerprint"], train["interpretation"], train["hardware"].get)
        missing = _SETTINGS - train["config"].keys()
        missing = missing.union(*(_ATTACK_SETTINGS - attack["config"].keys() for attack in attacks))
    except (KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{where} is not whole ({error!r}); {_OTHER}") from None
    if missing:
        raise UserError(f"{where} has no config {min(missing)}; {_OTHER}")


def _data(
    prepared: StudyPaths, cell: Cell, machine: Machine, scratch: Path, study: Study | None
) -> tuple[Path, str]:
    """The prepared data of the cell and its fingerprint; prepared again where it is missing."""
    ready = prepared.data(cell.dataset)
    if prepared.manifest(cell.dataset).is_file():
        from tnfdt.data.prepared import load

        return ready, load(ready).fingerprint
    from tnfdt.data.prepare import prepare_for

    study = study or _study_of(prepared.folder, machine)
    if cell.dataset not in study.datasets:
        raise UserError(f"study {study.name} has no dataset {cell.dataset}; --set study=its file")
    manifest = prepare_for(study, cell.dataset, machine, scratch)
    return scratch, str(manifest["fingerprint"])


def _study_of(folder: Path, machine: Machine) -> Study:
    name = folder.resolve().name
    return load_study(machine.study if Path(machine.study).stem == name else name)


def rerun(
    study: str,
    cell: Cell,
    recorded: Record,
    data: Path,
    machine: Machine,
    scratch: Path,
    weights: Path | None = None,
) -> Record:
    """Train and attack a cell again, in the arithmetic that the record was made in.

    weights: the folder of a training to attack instead of training again.
    """
    from tnfdt.train import cell as train_cell

    train, paths, made = recorded["train"], StudyPaths(scratch), {}
    config = {key: value for key, value in train["config"].items() if key != "num_classes"}
    machine = replace(
        machine,
        precision=config["precision"],
        compile=config["compile"],
        threads=train["hardware"].get("threads", machine.threads),
    )
    if weights is None:
        weights = paths.train(cell)
        made["train"] = train_cell.run(
            study=study,
            cell=cell,
            out=weights,
            data_dir=data,
            config=config,
            interpretation=train["interpretation"],
            machine=machine,
        )
        made["history"] = read_history(paths.history(cell))
    places = {"out": paths.attack(cell), "train_dir": weights, "data_dir": data}
    attacks = _attack_again(recorded["attacks"], identity(study, cell), machine, **places)
    return made | {"attacks": attacks}


def _attack_again(
    recorded: list[Record], cell: Record, machine: Machine, **places: Path
) -> list[Record]:
    """Each recorded attack, on the network that `places` names."""
    from tnfdt import devices
    from tnfdt.attack import cell as attack_cell

    devices.set_arithmetic(machine.precision, machine.threads)
    with devices.acquire(machine.device, machine.gpu_slots) as device:
        return [
            attack_cell.run(
                epsilon=attack["epsilon"],
                config=attack["config"],
                device=device,
                identity=cell,
                progress=True,
                **places,
            )
            for attack in recorded
        ]


def compare(recorded: Record, again: Record) -> Iterator[Compared]:
    """Every number of the training and of each attack; times are left out."""
    if "train" in again:
        yield from _compare("train", recorded["train"]["metrics"], again["train"]["metrics"])
        yield from _compare("history", recorded["history"], again["history"])
    for before, after in zip(recorded["attacks"], again["attacks"], strict=True):
        name = f"attack ε={before['epsilon']:g}"
        yield from _compare(name, before["metrics"], after["metrics"])


def _compare(
    stage: str, recorded: Mapping[str, Any], again: Mapping[str, Any]
) -> Iterator[Compared]:
    for key, value in recorded.items():
        if key not in _CLOCKS:
            other = again.get(key)
            yield Compared(f"{stage} {key}", value, other, verdict(value, other))


def verdict(recorded: Any, again: Any) -> str:
    """identical, within rounding, or different; of a row of numbers the worst of its verdicts."""
    if isinstance(recorded, list):
        if not isinstance(again, list) or len(again) != len(recorded):
            return DIFFERENT
        found = {verdict(a, b) for a, b in zip(recorded, again, strict=True)}
        return next((word for word in (DIFFERENT, ROUNDING) if word in found), IDENTICAL)
    if recorded == again:
        return IDENTICAL
    if not (is_number(recorded) and is_number(again)):
        return DIFFERENT
    near = math.isclose(recorded, again, rel_tol=RELATIVE, abs_tol=_ABSOLUTE)
    return ROUNDING if near else DIFFERENT


def report(cell: Cell, rows: list[Compared], recorded: Record, again: Record | None) -> str:
    """A line per number, what was made otherwise, and the verdict in one line at the end."""
    width = max(len(row.name) for row in rows)
    lines = [
        f"{row.name:{width}}  {_shown(row.recorded):>20}  {_shown(row.again):>20}  {row.verdict}"
        for row in rows
    ]
    lines.insert(0, f"{'':{width}}  {'recorded':>20}  {'again':>20}")
    if again is None:
        lines.append("the weights were not trained again: they are those of the record")
    else:
        same = recorded["model_sha256"] == again["model_sha256"]
        lines.append(f"the weights have {'the same bytes' if same else 'other bytes'}")
    counts = Counter(row.verdict for row in rows)
    if counts[IDENTICAL] < len(rows):
        lines += _circumstances(recorded)
    words = [f"{counts[word]} {word}" for word in (IDENTICAL, ROUNDING, DIFFERENT)]
    return "\n".join([*lines, f"{cell.path}: {', '.join(words)}"])


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return f"{len(value)} numbers"
    return f"{value:.10g}" if is_number(value) else str(value)


def _circumstances(recorded: Record) -> Iterator[str]:
    """What is not as it was when the record was made: the usual reason for other numbers."""
    here = provenance()
    if recorded.get("commit") != here["commit"]:
        yield f"made at commit {recorded.get('commit')}, now {here['commit']}"
    for part in ("versions", "hardware"):
        for key, value in recorded.get(part, {}).items():
            if key in here[part] and here[part][key] != value:
                yield f"made with {key} {value}, now {here[part][key]}"
