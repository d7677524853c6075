"""The command line: one verb a stage, each runnable by hand for a single cell.

Heavy libraries are imported inside the verbs, so that `tnfdt --help` and `tnfdt status`
answer at once.
"""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path

from tnfdt.run import stages
from tnfdt.run.arguments import (
    Arguments,
    Parser,
    Version,
    add_stage,
    add_verb,
    device,
    lab,
    number,
    port,
    refuse,
    settings,
)
from tnfdt.run.lifeline import end_with_run
from tnfdt.study.machine import Machine, load_machine, tracking_uri
from tnfdt.study.paths import Cell
from tnfdt.study.schema import UserError, require_checkout


def main(argv: list[str] | None = None) -> int:
    """Run one verb; what the user can fix is one line, with exit code 2."""
    arguments = _parser().parse_args(argv)
    end_with_run()
    logging.basicConfig(format="%(message)s")
    logging.getLogger("tnfdt").setLevel(logging.INFO)
    try:
        require_checkout()
        return int(arguments.verb(arguments) or 0)
    except UserError as error:
        return refuse(error)
    except ModuleNotFoundError as error:
        if (error.name or "tnfdt").startswith("tnfdt"):
            raise
        return refuse(UserError(f"{error}; pip install 'tnfdt[harness]'"))
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        return 141
    except OSError as error:  # what the file system refuses, wherever it does
        place = f"{error.filename}: " if error.filename else ""
        return refuse(UserError(f"{place}{error.strerror or error}; fix it and run again"))


def _tables(arguments: Arguments) -> None:
    """Make tables, claims and figures from what there is."""
    from tnfdt.run import tables as stage_tables

    if arguments.evidence:
        from tnfdt.run import evidence

        if not arguments.out:
            raise UserError("--evidence needs --out, the folder that the tables go to")
        made = evidence.rebuild(Path(arguments.evidence), Path(arguments.out), arguments.only)
    else:
        machine, study = stages.machine_and_study(arguments)
        made = stage_tables.run(study, Path(machine.results_dir), machine, arguments.only)
    for path in made:
        print(path)


def _pack(arguments: Arguments) -> None:
    """Write a study's evidence into one file."""
    from tnfdt.run import evidence

    machine, _ = stages.machine_and_study(arguments)
    study = arguments.study or machine.study
    print(evidence.pack(study, machine, lab=arguments.lab, weights=arguments.weights))


def _merge(arguments: Arguments) -> None:
    """Unite the evidence of several parts of one study."""
    from tnfdt.run import merge

    print(merge.merge([Path(path) for path in arguments.bundles], Path(arguments.out)))


def _plan(arguments: Arguments) -> None:
    """Say what a study will cost, or, with --power, what it can show."""
    from tnfdt import plan

    machine, study = stages.machine_and_known(arguments)
    if arguments.power:
        figure = Path(arguments.figure) if arguments.figure else None
        print(plan.power(study, machine, arguments.gpu, figure))
    else:
        print(plan.run(study, machine, gpus=arguments.gpus, gpu=arguments.gpu))


def _next(arguments: Arguments) -> None:
    """Go on to the next declared look at the results."""
    from tnfdt import plan

    machine, study = stages.machine_and_known(arguments)
    print(plan.next_look(study, machine, arguments.gpu))


def _doctor(arguments: Arguments) -> int:
    """Say what this machine lacks, and with --device test a device for a minute."""
    from tnfdt.run import doctor

    machine, study = stages.machine_and_known(arguments)
    return doctor.run(study, machine, arguments.device)


def _status(arguments: Arguments) -> int:
    """Show the grid: done, running, failed, waiting."""
    from tnfdt.run import check, status

    machine, study = stages.machine_and_study(arguments)
    if arguments.check:
        return check.run(study, machine)
    return status.run(study, machine, watch=arguments.watch, as_json=arguments.json)


def _verify(arguments: Arguments) -> int:
    """Re-run one recorded cell and compare every number."""
    from tnfdt import verify

    machine = load_machine(overrides=settings(arguments.set))
    if bool(arguments.folder) == bool(arguments.evidence):
        raise UserError("name a folder such as results/demo, or a bundle with --evidence")
    run = verify.run_bundle if arguments.evidence else verify.run
    place = Path(arguments.evidence or arguments.folder)
    return run(place, arguments.cell, machine, attack_only=arguments.attack_only)


def _track(arguments: Arguments) -> None:
    """Bring MLflow in line with the records on disk."""
    from tnfdt import tracking

    machine, study = stages.machine_and_study(arguments)
    results, store = Path(machine.results_dir), _store(machine)
    if arguments.follow:
        print(tracking.follow_run(results, study.name, store, study.cells))
    else:
        print(tracking.track(results, study.name, store))


def _ui(arguments: Arguments) -> None:
    """Open the MLflow UI on 127.0.0.1."""
    from tnfdt import tracking

    machine = load_machine(overrides=settings(arguments.set))
    tracking.ui(_store(machine), arguments.port)


def _store(machine: Machine) -> str:
    uri = tracking_uri(machine)
    if uri is None:
        raise UserError("tracking is none; set tracking_uri to a store or a server")
    return uri


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="tnfdt",
        description="Reproduce 'Tensor Normalization and Full Distribution Training'.",
        epilog="The whole pipeline: snakemake --cores all --config study=demo",
    )
    parser.add_argument("--version", action=Version)
    verbs = parser.add_subparsers(title="verbs", required=True, metavar="VERB")
    cell = Cell("digits", "wrn10_1", "tn_fdt", 0).path
    demo = "--study demo"

    data = add_stage(verbs, "data", stages.data, f"{demo} digits")
    data.add_argument("dataset", help="a dataset of the study")
    train = add_stage(verbs, "train", stages.train, f"{demo} {cell}")
    train.add_argument("cell", help="dataset/model/method/seedN")
    train.add_argument("--force", action="store_true", help="train again what is done")
    attack = add_stage(verbs, "attack", stages.attack, f"{demo} {cell} --epsilon 0.01")
    attack.add_argument("cell", help="dataset/model/method/seedN")
    attack.add_argument("--epsilon", required=True, help="an epsilon of the study")
    audit = add_stage(verbs, "audit", stages.audit, f"{demo} {cell}")
    audit.add_argument("cell", help="dataset/model/method/seedN")
    tables = add_verb(verbs, "tables", _tables, demo)
    parts = ("activations", "tables", "figures", "audit", "summary", "multiverse")
    tables.add_argument("--only", action="append", choices=parts, help="make one part of them")
    tables.add_argument("--evidence", metavar="FILE", help="from a bundle alone, into --out")
    tables.add_argument("--out", metavar="DIR", help="where to, with --evidence")
    pack = add_verb(verbs, "pack", _pack, f"{demo} --lab 'Lab A'")
    pack.add_argument("--lab", type=lab, help="who ran this part; merged tables name it")
    pack.add_argument("--weights", action="store_true", help="with the networks")
    merge = add_verb(verbs, "merge", _merge, "a.zip b.zip --out all.zip", study=False)
    merge.add_argument("bundles", nargs="+", metavar="FILE", help="bundles of one study")
    merge.add_argument("--out", required=True, metavar="FILE", help="the bundle to write")
    plan = add_verb(verbs, "plan", _plan, "--study paper --gpus 4 --gpu rtx3090")
    plan.add_argument("--gpus", type=number, help="GPUs that share the work (default: all)")
    plan.add_argument("--gpu", help="a GPU that is not here, by name")
    plan.add_argument("--power", action="store_true", help="P(reproduced) by claim and seeds")
    plan.add_argument("--figure", metavar="FILE", help="with --power: draw it, as PNG and PDF")
    following = add_verb(verbs, "next", _next, "--study mine.yaml")
    following.add_argument("--gpu", help="a GPU that is not here, by name, for the cost")
    doctor = add_verb(verbs, "doctor", _doctor, "--study paper --device auto")
    doctor.add_argument("--device", type=device, help="test it: auto, cpu, mps, cuda, cuda:1")
    status = add_verb(verbs, "status", _status, f"{demo} --watch")
    status.add_argument("--watch", action="store_true", help="show it again every few seconds")
    status.add_argument("--json", action="store_true", help="print JSON")
    status.add_argument("--check", action="store_true", help="hold the files against the records")
    verify = add_verb(verbs, "verify", _verify, f"results/demo --cell {cell}", study=False)
    verify.add_argument("folder", nargs="?", help="results of a study, for example results/demo")
    verify.add_argument("--evidence", metavar="FILE", help="a bundle instead of a folder")
    verify.add_argument("--attack-only", action="store_true", help="keep the recorded weights")
    verify.add_argument("--cell", required=True, help="dataset/model/method/seedN")
    track = add_verb(verbs, "track", _track, demo)
    track.add_argument("--follow", action="store_true", help="go on until stopped")
    ui = add_verb(verbs, "ui", _ui, "--port 5000", study=False)
    ui.add_argument("--port", type=port, default=5000, help="port on 127.0.0.1")
    return parser


if __name__ == "__main__":
    sys.exit(main())
