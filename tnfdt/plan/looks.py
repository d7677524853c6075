"""`tnfdt next`: what a look at the results has decided, and whether to go on to the next one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tnfdt.evidence.results import Results
from tnfdt.files.atomic import write_json
from tnfdt.plan.forecast import hours
from tnfdt.study.looks import as_json
from tnfdt.study.machine import Machine
from tnfdt.study.schema import UserError
from tnfdt.study.study import Study
from tnfdt.tables import stage
from tnfdt.verdicts.looks import look_name, undecided_rows


def next_look(study: Study, machine: Machine, gpu: str | None) -> str:
    """What this look has decided, what the next one would cost; and go on to it."""
    looks = study.looks
    if not looks.planned:
        raise UserError(f"study {study.name} declares no looks; see `seeds` in config/README.md")
    material = stage.load(study, Path(machine.results_dir), machine)
    _check_complete(study, material.results)
    _, verdicts = stage.judge_study(material)
    rows = undecided_rows(verdicts) & {cell.row for cell in study.cells}
    lines = [f"{look_name(looks.planned, looks.seeds)}:"]
    lines += [f"  {verdict.verdict:16}{verdict.claim.id}" for verdict in verdicts]
    if not rows or looks.look == len(looks.planned):
        why = "this was the last look" if rows else "no row can change a verdict any more"
        return "\n".join([*lines, f"{why}: nothing to add"])
    more = looks.planned[looks.look]
    following = replace(looks, look=looks.look + 1, rows=looks.rows | dict.fromkeys(rows, more))
    write_json(material.results.paths.looks, as_json(following))
    cells = sum(more - looks.row_seeds(row) for row in rows)
    cost = cells / len(study.cells) * hours(study, machine, len(study.seeds), gpu=gpu)
    return "\n".join([
        *lines,
        f"rows that can still change a verdict: {', '.join(sorted(rows))}",
        f"{look_name(looks.planned, more)}: {cells} more trainings, about {cost:.3g} hours of one "
        "device; snakemake trains them now",
    ])  # fmt: skip


def _check_complete(study: Study, results: Results) -> None:
    if not results.is_complete:
        raise UserError(
            f"study {study.name} has not all trainings and attacks of this look yet; "
            "run snakemake first"
        )
