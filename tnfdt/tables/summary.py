"""The reviewer's page of a study, and vanilla side by side where several labs took part.

The page has the form of the ML Reproducibility Challenge; all its numbers come from the records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd

from tnfdt.evidence.audits import current_audits
from tnfdt.evidence.results import Results
from tnfdt.files.provenance import is_exact
from tnfdt.files.records import Record
from tnfdt.study.names import dataset_name, epsilon_name, method_name, model_name
from tnfdt.study.paths import Cell
from tnfdt.study.schema import ROOT, read_yaml
from tnfdt.tables.grid import MISSING, Grid, Item, Number, markdown, text_page
from tnfdt.tables.paper import csv_text
from tnfdt.verdicts.judge import Verdict

TEMPLATE = Path(__file__).with_name("summary.md.jinja")
SCHEMA = ROOT / "workflow/schemas/study.schema.yaml"
_DECIDED = ("reproduced", "contradicted", "holds here", "fails here")  # else it is unchecked
_NAMED = 5  # missing cells named on the page

Labs = Mapping[str, Sequence[str]]  # paths of cells by the name of the lab that ran them


def summary_text(
    results: Results,
    published: pd.DataFrame,
    verdicts: Sequence[Verdict],
    audits: pd.DataFrame,
    labs: Labs,
) -> str:
    """The content of summary.md."""
    from jinja2 import Environment, StrictUndefined

    study = results.study
    audited = len(audits[["dataset", "model", "method", "seed"]].drop_duplicates())
    environment = Environment(undefined=StrictUndefined, keep_trailing_newline=True)  # Markdown
    return environment.from_string(TEMPLATE.read_text(encoding="utf-8")).render(
        study=study,
        cells=_counts(results),
        audits={"made": audited, "planned": len(study.audited()) if study.audit.include else 0},
        grid=_grid(results),
        tally=_tally(verdicts),
        claims=[_claim(verdict) for verdict in verdicts],
        training=_training(results),
        attack=_attack(results),
        data=_data(results),
        versions=_versions(results),
        scale=list(_scale(results, published)),
        readings=list(_readings(results)),
        compute=list(_compute(results)),
        energy=_energy(results),
        labs=markdown(_lab_grid(results, labs)) if labs else "",
        unchecked=list(_unchecked(results, verdicts, audited)),
    )


def summary_page(text: str) -> str:
    """summary.md as a page of the report."""
    from markdown_it import MarkdownIt

    body = MarkdownIt("commonmark", {"html": False}).enable("table").render(text)
    return text_page("summary", body)


def _counts(results: Results) -> dict[str, int]:
    planned = len(results.cells)
    attacks = planned * len(results.epsilons)
    return {
        "planned": planned,
        "trained": len(results.trained),
        "attacks": attacks,
        "attacked": len(results.attacked),
    }


def _grid(results: Results) -> list[str]:
    lines = []
    for table, cells in results.grid.items():
        datasets = ", ".join(dict.fromkeys(dataset_name(cell.dataset) for cell in cells))
        models = ", ".join(dict.fromkeys(model_name(cell.model) for cell in cells))
        methods = ", ".join(dict.fromkeys(method_name(cell.method) for cell in cells))
        lines.append(f"{table} with {models} on {datasets}, methods {methods}")
    return lines


def _tally(verdicts: Sequence[Verdict]) -> str:
    counts = Counter(verdict.verdict for verdict in verdicts)
    return ", ".join(f"{count} {word}" for word, count in counts.items()) or "No claims"


def _claim(verdict: Verdict) -> dict[str, str]:
    claim = verdict.claim
    texts = {"verdict": verdict.verdict, "says": claim.says, "reason": verdict.reason}
    return {key: _cell(text) for key, text in {**texts, "section": claim.section}.items()}


def _cell(text: object) -> str:
    """A text in a table of Markdown."""
    return " ".join(str(text).replace("|", "\\|").split())


def _training(results: Results) -> str:
    recipe = results.study.training
    return (
        f"{recipe.optimizer}, learning rate {recipe.lr:g} times {recipe.lr_drop_factor:g} every "
        f"{recipe.lr_drop_every} epochs, momentum {recipe.momentum:g}, weight decay "
        f"{recipe.weight_decay:g}, batches of {recipe.batch_size}, {recipe.epochs} epochs"
    )


def _attack(results: Results) -> str:
    attack = results.study.attack
    epsilons = ", ".join(epsilon_name(epsilon) for epsilon in results.epsilons)
    counts = {dataset: results.images(dataset) for dataset in _datasets(results)}
    images = ", ".join(f"{count:,} of {dataset_name(key)}" for key, count in counts.items())
    return f"PGD, {attack.steps} iterates, {epsilons}; test images attacked: {images}"


def _datasets(results: Results) -> list[str]:
    return list(dict.fromkeys(cell.dataset for cell in results.cells))


def _data(results: Results) -> list[str]:
    prints = {cell.dataset: r.get("dataset_fingerprint") for cell, r in results.trained.items()}
    return [f"{dataset_name(key)} (fingerprint {str(prints[key])[:12]})" for key in sorted(prints)]


def _records(results: Results) -> list[Record]:
    return [*results.trained.values(), *(a.record for a in results.attacked.values())]


def _versions(results: Results) -> dict[str, list[str]]:
    found: dict[str, set[str]] = {}
    for record in _records(results):
        versions = record.get("versions") or {}
        for name, version in {"commit": record.get("commit"), **versions}.items():
            found.setdefault(name, set()).add(str(version))
    return {name: sorted(found[name]) for name in sorted(found)}


def _scale(results: Results, published: pd.DataFrame) -> Iterator[str]:
    study, paper = results.study, read_yaml(SCHEMA)["properties"]  # its defaults are the paper's
    for table, cells in results.grid.items():
        ours = {cell.model for cell in cells}
        papers = {*published[published["table"] == table]["model"]}
        if ours - papers:
            names = [", ".join(sorted(map(model_name, models))) for models in (ours, papers)]
            yield f"{table}: {names[0]}; the paper has {names[1]}."
    if study.limit.train or study.limit.test:
        train, test = (f"{n:,}" if n else "all" for n in (study.limit.train, study.limit.test))
        yield f"{train} training and {test} test images of each dataset, not all of them."
    if study.attack.limit:
        yield f"{study.attack.limit:,} test images of each dataset are attacked, not all of them."
    for key, value in asdict(study.training).items():
        usual = paper["training"]["properties"].get(key, {}).get("default")
        if value != usual:
            yield f"training.{key} is {_cell(value)}, in the paper {_cell(usual)}."
    if study.attack.steps != (usual := paper["attack"]["properties"]["steps"]["default"]):
        yield f"attack.steps is {study.attack.steps}, in the paper {usual}."


def _readings(results: Results) -> Iterator[dict[str, str]]:
    keys = read_yaml(SCHEMA)["properties"]["interpretation"]["properties"]
    for key, value in results.study.interpretation.items():
        known = keys.get(key, {})
        about, note = (
            known.get("description", ""),
            "" if known.get("default") == value else "chosen",
        )
        yield {"key": key, "about": _cell(about), "value": _cell(value), "note": note}


def _compute(results: Results) -> Iterator[dict[str, str]]:
    stages = {
        "train": list(results.trained.values()),
        "attack": [attack.record for attack in results.attacked.values()],
        "audit": [record for _, record in current_audits(results)],
    }
    for stage, records in ((stage, found) for stage, found in stages.items() if found):
        seconds = sum(float(record["metrics"].get("duration_seconds") or 0) for record in records)
        kinds = sorted({_hardware(record) for record in records})
        yield {
            "stage": stage,
            "jobs": f"{len(records):,}",
            "hours": f"{seconds / 3600:,.2f}",
            "hardware": _cell("; ".join(kinds)) or MISSING,
        }


def _hardware(record: Record) -> str:
    hardware = record.get("hardware") or {}
    named = (hardware.get(key) for key in ("device", "cpu"))
    return ", ".join(str(value) for value in named if value) or "unknown"


def _energy(results: Results) -> str:
    joules = [r["metrics"].get("energy_joules") for r in results.trained.values()]
    known = [float(value) for value in joules if value]
    return f"{sum(known) / 3.6e6:.2f}" if known else ""


def _unchecked(results: Results, verdicts: Sequence[Verdict], audited: int) -> Iterator[str]:
    missing = [cell.path for cell in results.cells if cell not in results.trained]
    if missing:
        more = f" and {len(missing) - _NAMED} more" * (len(missing) > _NAMED)
        yield f"Not trained: {', '.join(missing[:_NAMED])}{more}."
    if unattacked := len(results.cells) * len(results.epsilons) - len(results.attacked):
        yield f"Not attacked: {unattacked} pairs of a cell and an ε."
    if results.study.audit.include and (left := len(results.study.audited()) - audited):
        yield f"Not audited: {left} cells."
    for verdict in verdicts:
        if verdict.verdict not in _DECIDED:
            yield f"{verdict.verdict.capitalize()}: {verdict.claim.says}"
    vague = sum(not is_exact(str(record.get("commit"))) for record in _records(results))
    if vague:
        yield f"{vague} records were made by code that no commit holds in full."
    yield "The authors' own code and weights: none are used here."


def lab_texts(results: Results, labs: Labs) -> dict[str, str]:
    """labs.md and labs.csv: vanilla's mean of each lab beside each other; none without labs."""
    if not labs:
        return {}
    columns = ["lab", "dataset", "model", "epsilon", "seeds", "mean"]
    frame = pd.DataFrame(list(_lab_means(results, labs)), columns=columns)
    return {"labs.md": markdown(_lab_grid(results, labs)), "labs.csv": csv_text(frame)}


def _lab_means(results: Results, labs: Labs) -> Iterator[tuple[Any, ...]]:
    """Lab, dataset, model, epsilon ("" for clean), seeds and vanilla's mean in percent."""
    for dataset, model in _vanilla(results):
        for epsilon in (None, *results.epsilons):
            for lab in sorted(labs):
                values = _accuracies(results, {*labs[lab]}, (dataset, model), epsilon)
                mean = 100 * sum(values) / len(values) if values else None
                name = "" if epsilon is None else f"{epsilon:g}"
                yield lab, dataset, model, name, len(values), mean


def _vanilla(results: Results) -> list[tuple[str, str]]:
    cells = [cell for cell in results.cells if cell.method == "vanilla"]
    return list(dict.fromkeys((cell.dataset, cell.model) for cell in cells))


def _accuracies(
    results: Results, mine: set[str], block: tuple[str, str], epsilon: float | None
) -> list[float]:
    cells = [Cell(*block, "vanilla", seed) for seed in results.seeds]
    found = [results.accuracy(cell, epsilon) for cell in cells if cell.path in mine]
    return [value for value in found if value is not None]


def _lab_grid(results: Results, labs: Labs) -> Grid:
    means: dict[tuple[str, str, str], list[Item]] = {}
    for _, dataset, model, epsilon, seeds, mean in _lab_means(results, labs):
        column = epsilon_name(float(epsilon)) if epsilon else "clean"
        text = MISSING if mean is None else f"{mean:.2f} ({seeds})"
        key = (dataset_name(dataset), model_name(model), column)
        means.setdefault(key, []).append(Number(value=text))
    return Grid(
        label="labs",
        caption=["Vanilla by lab: mean accuracy in percent, and its seeds in brackets."],
        header=("Dataset", "Model", "Accuracy", *sorted(labs)),
        rows=[[*key, *values] for key, values in means.items()],
        blocks=[len(means)],
    )
