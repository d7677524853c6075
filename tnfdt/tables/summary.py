"""The reviewer's page of a study, and vanilla side by side where several labs took part.

The page has the form of the ML Reproducibility Challenge; all its numbers come from the records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import pandas as pd

from tnfdt.evidence.audits import current_audits
from tnfdt.evidence.results import Results, number
from tnfdt.files.provenance import is_exact
from tnfdt.files.records import Record
from tnfdt.study.methods import VANILLA
from tnfdt.study.names import dataset_name, epsilon_name, method_name, model_name
from tnfdt.study.paths import Cell
from tnfdt.study.schema import ROOT, read_yaml
from tnfdt.study.study import Study
from tnfdt.tables.cards import says
from tnfdt.tables.claims import deltas, sections, shown, tally, why_not_run
from tnfdt.tables.grid import MISSING, Grid, Item, Number, html_document, markdown
from tnfdt.tables.multiverse import NOTE
from tnfdt.tables.paper import column, csv_text
from tnfdt.verdicts.judge import Verdict
from tnfdt.verdicts.looks import DECIDED
from tnfdt.verdicts.multiverse import NONE, Readings
from tnfdt.verdicts.regime import study_differences

TEMPLATE = Path(__file__).with_name("summary.md.jinja")
SCHEMA = ROOT / "workflow/schemas/study.schema.yaml"  # its defaults are the paper's
_NAMED = 5  # missing cells named on the page

Labs = Mapping[str, Sequence[str]]  # paths of cells by the name of the lab that ran them


def summary_text(
    results: Results,
    paper: Study,
    verdicts: Sequence[Verdict],
    labs: Labs,
    others: Readings = NONE,
) -> str:
    """The content of summary.md.

    paper: the paper's own study. others: what other readings say of the claims.
    """
    from jinja2 import Environment

    everything, results = results, results.own()
    schema = read_yaml(SCHEMA)
    keys, named = schema["properties"], schema["$defs"]  # the latter describe what a $ref names
    readings = keys["interpretation"]["properties"]
    audits = [record for _, record in current_audits(results)]
    environment = Environment(keep_trailing_newline=True)
    environment.filters["cell"] = _cell
    return environment.from_string(TEMPLATE.read_text(encoding="utf-8")).render(
        study=results.study,
        results=results,
        claims=[(head, [*tally(chosen)], shown(chosen)) for head, chosen in sections(verdicts)],
        says=says,
        deltas=deltas,
        dataset_name=dataset_name,
        attacks=len(results.cells) * len(results.epsilons),
        audited=len(audits),
        grid={table: list(_names(cells)) for table, cells in results.grid.items()},
        training=asdict(results.study.training),
        data={c.dataset: str(r.get("dataset_fingerprint")) for c, r in results.trained.items()},
        scale=study_differences(results.study, paper),
        readings={key: {**named.get(key, {}), **entry} for key, entry in readings.items()},
        others=others,
        note=NOTE,
        compute=list(_compute(everything, audits)),
        labs=markdown(_lab_grid(results, labs)) if labs else "",
        unchecked=list(_unchecked(results, verdicts, len(audits))),
    )


def summary_page(text: str) -> str:
    """summary.md as a page of the report."""
    from markdown_it import MarkdownIt

    body = MarkdownIt("commonmark", {"html": False}).enable("table").render(text)
    return html_document("summary", body)


def _cell(text: object) -> str:
    """A text in a table of Markdown."""
    return " ".join(str(text).replace("|", "\\|").split())


def _names(cells: Sequence[Cell]) -> Iterator[str]:
    for part, name in enumerate((dataset_name, model_name, method_name)):
        yield ", ".join(dict.fromkeys(name(str(cell[part])) for cell in cells))


def _compute(results: Results, audits: Sequence[Record]) -> Iterator[tuple[str, ...]]:
    """Stage, jobs, hours and hardware."""
    attacks = [attack.record for attack in results.attacked.values()]
    stages = {"train": [*results.trained.values()], "attack": attacks, "audit": audits}
    for stage, records in stages.items():
        seconds = sum(number(record["metrics"].get("duration_seconds")) for record in records)
        kinds = "; ".join(sorted({_hardware(record) for record in records})) or MISSING
        yield stage, f"{len(records):,}", f"{seconds / 3600:,.2f}", _cell(kinds)


def _hardware(record: Record) -> str:
    hardware = record.get("hardware")
    known = hardware if isinstance(hardware, dict) else {}
    named = (known.get(key) for key in ("device", "cpu"))
    return ", ".join(str(value) for value in named if value) or "unknown"


def _unchecked(results: Results, verdicts: Sequence[Verdict], audited: int) -> Iterator[str]:
    missing = [cell.path for cell in results.cells if cell not in results.trained]
    if missing:
        more = f" and {len(missing) - _NAMED} more" * (len(missing) > _NAMED)
        yield f"Not trained: {', '.join(missing[:_NAMED])}{more}."
    if unattacked := len(results.cells) * len(results.epsilons) - len(results.attacked):
        yield f"Not attacked: {unattacked} pairs of a cell and an ε."
    if results.study.audit.include and (left := len(results.study.audited()) - audited):
        yield f"Not audited: {left} cells."
    undecided = Counter(v.verdict for v in verdicts if v.verdict not in (*DECIDED, "not run"))
    for word, count in undecided.items():
        yield f"{count} {word}: too few seeds or images, or no room; the claims' last column says."
    left_out: dict[str, list[str]] = {}
    for verdict in verdicts:
        if verdict.verdict == "not run" and not verdict.claim.ours:
            left_out.setdefault(why_not_run(verdict), []).append(verdict.claim.says)
    yield from (f"Not run, {why}: {' '.join(claims)}" for why, claims in left_out.items())
    if vague := sum(not is_exact(str(record.get("commit"))) for record in results.records):
        yield f"{vague} records were made by code that no commit holds in full."
    yield "The authors' own code and weights: none are used here."


def lab_texts(results: Results, labs: Labs) -> dict[str, str]:
    """labs.md and labs.csv: vanilla's mean of each lab beside each other; none without labs."""
    if not labs:
        return {}
    return {
        "labs.md": markdown(_lab_grid(results, labs)),
        "labs.csv": csv_text(_lab_frame(results, labs)),
    }


def _lab_frame(results: Results, labs: Labs) -> pd.DataFrame:
    """Vanilla's mean in percent and its seeds, a row a dataset, model, column and lab."""
    cells = [cell for cell in results.cells if cell.method == VANILLA]
    rows = []
    for dataset, model in dict.fromkeys(cell[:2] for cell in cells):
        for epsilon in (None, *results.epsilons):
            for lab in sorted(labs):
                own = [c for c in cells if c[:2] == (dataset, model) and c.path in labs[lab]]
                found = [results.accuracy(cell, epsilon) for cell in own]
                values = [100 * value for value in found if value is not None]
                mean = sum(values) / len(values) if values else None
                rows.append((dataset, model, column(epsilon), lab, len(values), mean))
    return pd.DataFrame(rows, columns=["dataset", "model", "column", "lab", "seeds", "mean"])


def _lab_grid(results: Results, labs: Labs) -> Grid:
    frame = _lab_frame(results, labs)
    titles = {column(epsilon): epsilon_name(epsilon) for epsilon in results.epsilons}
    rows: list[list[Item]] = []
    for key, lines in frame.groupby(["dataset", "model", "column"], sort=False):
        numbers = zip(lines["mean"], lines["seeds"], strict=True)
        texts = [f"{mean:.2f} ({seeds})" if seeds else MISSING for mean, seeds in numbers]
        dataset, model, name = map(str, key)
        names = (dataset_name(dataset), model_name(model), titles.get(name, name))
        rows.append([*names, *(Number(value=text) for text in texts)])
    return Grid(
        label="labs",
        caption=[
            "Vanilla by lab: mean accuracy in percent, and its seeds in brackets. "
            "Cells of a bundle that names no lab are not in it."
        ],
        header=("Dataset", "Model", "Accuracy", *sorted(labs)),
        rows=rows,
        blocks=[len(rows)],
    )
