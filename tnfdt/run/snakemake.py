"""What the Snakefile asks the package: the study, names and digests for its rules."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from tnfdt.data.registry import DATASETS
from tnfdt.devices import jobs_at_once, wants_gpu
from tnfdt.files.atomic import read_json, sha256_file, write_json
from tnfdt.plan.workload import count_text, reading_lines
from tnfdt.run import follower
from tnfdt.study.looks import as_json
from tnfdt.study.machine import Machine, load_machine, machine_from_dict, tracking_uri
from tnfdt.study.paths import Cell, StudyPaths, format_epsilon
from tnfdt.study.products import CLAIMS
from tnfdt.study.schema import EXIT_USER_ERROR, UserError
from tnfdt.study.study import Slice, Study, digest, load_study

_PAPER_MODELS = ("resnet34", "resnet152", "wrn28_10", "wrn10_1", "wrn16_1", "wrn16_2")


def load(config: dict[str, Any]) -> tuple[Machine, Study]:
    """The machine and the study of a Snakemake run; names of datasets and models are known."""
    machine = machine_from_dict(config)
    _refuse_password(machine.tracking_uri, sys.argv)
    tracking_uri(machine)  # refuses an unusable one of the environment
    study = load_study(machine.study, machine.results_dir)
    check_known(study, machine)
    return machine, study


def _refuse_password(uri: str, command: list[str]) -> None:
    """Snakemake logs its command line and repeats it in the script of every cluster job."""
    if not any(uri in argument for argument in command):
        return
    from tnfdt.tracking.address import mask_uri

    if (shown := mask_uri(uri)) != uri:
        raise UserError(
            f"--config tracking_uri={shown}: a password does not belong on a command line; give "
            "the address without it and set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD"
        )


def check_known(study: Study, machine: Machine) -> None:
    """Every dataset and every model of the grid is one that this package can make."""
    for name in study.grid_datasets:
        if name not in DATASETS and study.datasets[name].path is None:
            raise UserError(
                f"study {study.name}: datasets.{name} is not one of {', '.join(DATASETS)}; "
                "give the `path` of an .npz for a dataset of your own"
            )
    for name in dict.fromkeys(cell.model for cell in study.cells):
        if name not in _PAPER_MODELS:  # timm takes seconds to import: not for the usual names
            _check_model(study, name)


def _check_model(study: Study, name: str) -> None:
    from tnfdt.models import check_name

    try:
        check_name(name)
    except ValueError as error:
        raise UserError(f"study {study.name}: grid models: {error}") from None


def export(config: dict[str, Any]) -> None:
    """Let the jobs of this run find their `tnfdt`, the study, and the settings of the run.

    They go through the environment because they are no parameters of a rule: another device or
    another store does not call for a re-run.
    """
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    os.environ["TNFDT_STUDY"] = str(config["study"])
    stored = vars(load_machine())
    changed = {key: value for key, value in config.items() if stored[key] != value}
    pairs = (f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in changed.items())
    os.environ["TNFDT_SET"] = "\n".join(pairs)  # as JSON: YAML would read the folder 007 as 7


def reading_figures(study: Study) -> list[str]:
    """The names of the specification curves; the claims are read only where there are any."""
    if not study.multiverse.readings:
        return []
    from tnfdt.verdicts import claims

    return list(claims.reading_figures(claims.load_claims(CLAIMS), study).values())


def constraints(study: Study) -> dict[str, str]:
    """A pattern per wildcard that admits the study's own values and nothing else."""
    values: dict[str, Any] = {
        "dataset": study.grid_datasets,
        "model": {cell.model for cell in study.cells},
        "method": {cell.method for cell in study.cells} | {*study.multiverse.methods},
        "seed": {str(cell.seed) for cell in study.cells},
        "epsilon": {format_epsilon(epsilon) for epsilon in study.attack.epsilons},
    }
    return {key: one_of(names) for key, names in values.items()}


def trained_methods(study: Study) -> str:
    """A pattern of the methods that are trained, those of other readings among them."""
    best, sources = study.multiverse.best_of, study.multiverse.sources
    own = {name for name in sources if sources[name] == name and name not in best}
    return one_of({cell.method for cell in study.cells} | own)


def one_of(words: Iterable[str]) -> str:
    """A pattern that admits these words and nothing else, with what they share written once.

    Snakemake reads a constraint again for every file name that it makes: 2,000 seeds side by
    side are a seventh of a dry run of 10,000 cells.
    """
    tails = defaultdict(set)
    for word in words:
        tails[word[:1]].add(word[1:])
    may_end = "" in tails
    heads = defaultdict(list)  # letters, by what may follow them
    for letter in sorted(tails.keys() - {""}):
        heads[one_of(tails[letter])].append(re.escape(letter))
    branches = [_letter(letters) + tail for tail, letters in heads.items()]
    pattern = "|".join(branches)
    if may_end and branches:
        return f"(?:{pattern})?"
    return f"(?:{pattern})" if len(branches) > 1 else pattern


def _letter(letters: list[str]) -> str:
    return letters[0] if len(letters) == 1 else f"[{''.join(letters)}]"


def cell(wildcards: Any) -> Cell:
    """The cell that a job's wildcards name."""
    return Cell(wildcards.dataset, wildcards.model, wildcards.method, int(wildcards.seed))


def missing(jobs: Iterable[list[str]], *, made: bool) -> Iterator[str]:
    """Of each job, given as the files it makes, one that was lost: the job makes all of them again.

    A job of which nothing is there has lost its files only if what is made from them is there;
    otherwise that asks for them.
    """
    for files in jobs:
        there = [os.path.isfile(path) for path in files]  # faster than Path for 100,000 files
        if not all(there) and (made or any(there)):
            yield files[there.index(False)]


def data_digest(study: Study, machine: Machine, wildcards: Any) -> str:
    return digest(data_slice(study, machine, wildcards.dataset))


def data_slice(study: Study, machine: Machine, dataset: str) -> Slice:
    """What the copy of a dataset depends on: of a user's own file also the content, which is that
    of the file, or of the copy where the file is gone."""
    config = study.data_slice(dataset, machine)
    if config["path"] is None or config["path"] != study.datasets[dataset].path:
        return config
    path = Path(config["path"])
    if path.is_file():
        return config | {"npz_sha256": sha256_file(path)}
    manifest = machine.paths(study.name).manifest(dataset)
    known = read_json(manifest) if manifest.is_file() else None
    return config | {"npz_sha256": known.get("npz_sha256") if isinstance(known, dict) else None}


def train_digest(study: Study, machine: Machine, wildcards: Any) -> str:
    return digest(study.train_slice(cell(wildcards), machine))


def attack_digests(study: Study) -> dict[str, dict[str, str]]:
    """The digests of the attacks by epsilon and method: few, so computed once for all cells."""
    return {
        format_epsilon(epsilon): {
            method: digest(study.attack_slice(epsilon, method)) for method in study.methods
        }
        for epsilon in study.attack.epsilons
    }


def audit_digest(study: Study, wildcards: Any) -> str:
    return digest(study.audit_slice(wildcards.method))


def gpus(machine: Machine) -> int:
    """GPU slots that a training or an attack takes."""
    return int(wants_gpu(machine.device))


def limit_gpus(workflow: Any, machine: Machine) -> None:
    """Use all GPUs of this machine, unless the command line says how many, or a cluster counts."""
    here = workflow.is_main_process and workflow.local_exec and wants_gpu(machine.device)
    if here and "gpu" not in workflow.global_resources:
        jobs = jobs_at_once(machine.device, machine.gpu_slots, machine.threads)
        workflow.register_resource("gpu", jobs)


def at_once(workflow: Any, machine: Machine) -> int:
    """Trainings that this run lets work at a time: as cores and GPUs allow."""
    jobs = max(workflow.cores // machine.threads, 1)
    if wants_gpu(machine.device):
        jobs = min(jobs, workflow.global_resources["gpu"].value)
    return int(jobs)


def begin(machine: Machine, study: Study, jobs: int | None) -> str:
    """Start to follow the run for MLflow; say what it is about to do."""
    if tracking_uri(machine):
        follower.start()
    paths = machine.paths(study.name)
    done = sum(paths.record(cell).exists() for cell in study.cells)
    return banner(study, machine, done, jobs)


def banner(study: Study, machine: Machine, done: int, jobs: int | None) -> str:
    """What a run is about to do: cells, device, what is done, and how long it will take.

    `jobs` work at a time; None on a cluster, whose devices are not at hand: no time is given.
    The estimate is made by a process of its own: torch would stay in the memory of this one.
    """
    own = f"{count_text(study)}; {done} of {len(study.cells)} trainings are done"
    head = "\n".join([f"study {study.name}: {own}", *reading_lines(study)])
    if jobs is None:
        return f"{head}\ndevice: the cluster's; `tnfdt plan --gpu NAME` shows what to expect"
    child = subprocess.run(
        [sys.executable, "-m", "tnfdt.plan", str(jobs)],
        input=json.dumps(asdict(machine)),  # by the pipe: it may hold the password of a store
        capture_output=True,
        text=True,
    )
    if child.returncode == EXIT_USER_ERROR:  # no such device: every job would fail
        raise UserError(child.stderr.strip().removeprefix("tnfdt: "))
    return f"{head}\n{child.stdout}".rstrip()


def end(machine: Machine, study: Study, failed: bool) -> str:
    """Bring MLflow in line with the records; say where the results are, and show a table."""
    paths = machine.paths(study.name)
    lines = [] if failed else _where(paths, next(iter(study.grid)))
    if tracking_uri(machine):
        lines.append(follower.finish())
    if failed:
        lines.append(f"some jobs failed: tnfdt status --study {study.name} shows which")
    else:
        note_look(study, paths)
        lines += [f"open first: {paths.report.resolve()}"] if paths.report.exists() else []
    return "\n".join(lines)


def note_look(study: Study, paths: StudyPaths) -> None:
    """Keep that the results of so many seeds were seen, once all of them are there."""
    seeds = len(study.seeds)
    whole = all(paths.record(cell).is_file() for cell in study.cells)
    if whole and paths.tables.is_dir() and seeds not in study.looks.seen:
        seen = (*study.looks.seen, seeds)
        write_json(paths.looks, as_json(replace(study.looks, seen=seen)))


def _where(paths: StudyPaths, first: str) -> list[str]:
    """The table, and where the rest lies, as far as this run made it."""
    table = paths.tables / f"{first}.md"
    places = {"tables": paths.tables, "figures": paths.figures}
    found = [f"{key:8} {path}" for key, path in places.items() if path.exists()]
    return [*([table.read_text()] if table.exists() else []), *found, "runs     make ui"]
