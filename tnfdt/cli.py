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
    """Run one verb; what the user can mend is told in one line, with exit code 2."""
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
        return refuse(UserError(f"{place}{error.strerror or error}; mend it and run again"))


def _tables(arguments: Arguments) -> None:
    """Make tables, claims and figures from what there is."""
    from tnfdt.run import tables as stage_tables

    machine, study = stages.machine_and_study(arguments)
    for path in stage_tables.run(study, Path(machine.results_dir), machine, arguments.only):
        print(path)


def _plan(arguments: Arguments) -> None:
    """Say what a study will cost."""
    from tnfdt import plan

    machine, study = stages.machine_and_known(arguments)
    print(plan.run(study, machine, gpus=arguments.gpus, gpu=arguments.gpu))


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
    return verify.run(Path(arguments.folder), arguments.cell, machine)


def _track(arguments: Arguments) -> None:
    """Bring MLflow in line with the records on disk."""
    from tnfdt import tracking
    from tnfdt.tables import write as tables_study

    machine, study = stages.machine_and_study(arguments)
    results, store = Path(machine.results_dir), _store(machine)
    print(tracking.track(results, study.name, store))
    if tables_study.link_runs(results / study.name):
        tracking.track(results, study.name, store)  # the store's copy of the tables follows


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
    parts = ("tables", "figures", "audit")
    tables.add_argument("--only", action="append", choices=parts, help="make one part of them")
    plan = add_verb(verbs, "plan", _plan, "--study paper --gpus 4 --gpu rtx3090")
    plan.add_argument("--gpus", type=number, default=1, help="GPUs that share the work")
    plan.add_argument("--gpu", help="a GPU that is not here, by name")
    status = add_verb(verbs, "status", _status, f"{demo} --watch")
    status.add_argument("--watch", action="store_true", help="show it again every few seconds")
    status.add_argument("--json", action="store_true", help="print JSON")
    status.add_argument("--check", action="store_true", help="hold the files against the records")
    verify = add_verb(verbs, "verify", _verify, f"results/demo --cell {cell}", study=False)
    verify.add_argument("folder", help="results of a study, for example results/demo")
    verify.add_argument("--cell", required=True, help="dataset/model/method/seedN")
    add_verb(verbs, "track", _track, demo)
    ui = add_verb(verbs, "ui", _ui, "--port 5000", study=False)
    ui.add_argument("--port", type=port, default=5000, help="port on 127.0.0.1")
    return parser


if __name__ == "__main__":
    sys.exit(main())
