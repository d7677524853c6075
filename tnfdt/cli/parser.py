"""The command line: one verb a stage, each runnable by hand for a single cell.

Heavy libraries are imported inside the verbs, so that `tnfdt --help` and `tnfdt status`
answer at once.
"""

from __future__ import annotations

import argparse
import logging

from tnfdt.cli import stages, verbs
from tnfdt.cli.arguments import (
    Parser,
    Version,
    add_stage,
    add_verb,
    device,
    figure,
    lab,
    number,
    port,
)
from tnfdt.run.lifeline import end_with_run
from tnfdt.study.paths import Cell
from tnfdt.study.products import PARTS
from tnfdt.study.schema import UserError, refuse, require_checkout


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


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="tnfdt",
        description="Reproduce 'Tensor Normalization and Full Distribution Training'.",
        epilog="The whole pipeline: snakemake --cores all --config study=demo",
    )
    parser.add_argument("--version", action=Version)
    known = parser.add_subparsers(title="verbs", required=True, metavar="VERB")
    cell = Cell("digits", "wrn10_1", "tn_fdt", 0).path
    demo = "--study demo"

    data = add_stage(known, "data", stages.data, f"{demo} digits")
    data.add_argument("dataset", help="a dataset of the study")
    train = add_stage(known, "train", stages.train, f"{demo} {cell}")
    train.add_argument("cell", help="dataset/model/method/seedN")
    train.add_argument("--force", action="store_true", help="train again what is done")
    attack = add_stage(known, "attack", stages.attack, f"{demo} {cell} --epsilon 0.01")
    attack.add_argument("cell", help="dataset/model/method/seedN")
    attack.add_argument("--epsilon", required=True, help="an epsilon of the study")
    audit = add_stage(known, "audit", stages.audit, f"{demo} {cell}")
    audit.add_argument("cell", help="dataset/model/method/seedN")
    tables = add_verb(known, "tables", verbs.tables, demo)
    tables.add_argument("--only", action="append", choices=PARTS, help="make one part of them")
    tables.add_argument("--evidence", metavar="FILE", help="from a bundle alone, into --out")
    tables.add_argument("--out", metavar="DIR", help="where to, with --evidence")
    pack = add_verb(known, "pack", verbs.pack, f"{demo} --lab 'Lab A'")
    pack.add_argument("--lab", type=lab, help="who ran this part; merged tables name it")
    pack.add_argument("--weights", action="store_true", help="with the networks")
    merge = add_verb(known, "merge", verbs.merge, "a.zip b.zip --out all.zip", study=False)
    merge.add_argument("bundles", nargs="+", metavar="FILE", help="bundles of one study")
    merge.add_argument("--out", required=True, metavar="FILE", help="the bundle to write")
    plan = add_verb(known, "plan", verbs.plan, "--study paper --gpus 4 --gpu rtx3090")
    plan.add_argument("--gpus", type=number, help="GPUs that share the work (default: all)")
    plan.add_argument("--gpu", help="a GPU that is not here, by name")
    plan.add_argument("--power", action="store_true", help="P(reproduced) by claim and seeds")
    plan.add_argument("--figure", type=figure, metavar="FILE", help="with --power: draw it")
    following = add_verb(known, "next", verbs.next_look, "--study mine.yaml")
    following.add_argument("--gpu", help="a GPU that is not here, by name, for the cost")
    doctor = add_verb(known, "doctor", verbs.doctor, "--study paper --device auto")
    doctor.add_argument("--device", type=device, help="test it: auto, cpu, mps, cuda, cuda:1")
    status = add_verb(known, "status", verbs.status, f"{demo} --watch")
    status.add_argument("--watch", action="store_true", help="show it again every few seconds")
    status.add_argument("--json", action="store_true", help="print JSON")
    status.add_argument("--check", action="store_true", help="hold the files against the records")
    verify = add_verb(known, "verify", verbs.verify, f"results/demo --cell {cell}", study=False)
    verify.add_argument("folder", nargs="?", help="results of a study, for example results/demo")
    verify.add_argument("--evidence", metavar="FILE", help="a bundle instead of a folder")
    verify.add_argument("--attack-only", action="store_true", help="keep the recorded weights")
    verify.add_argument("--cell", required=True, help="dataset/model/method/seedN")
    track = add_verb(known, "track", verbs.track, demo)
    track.add_argument("--follow", action="store_true", help="go on until stopped")
    ui = add_verb(known, "ui", verbs.ui, "--port 5000", study=False)
    ui.add_argument("--port", type=port, default=5000, help="port on 127.0.0.1")
    return parser
