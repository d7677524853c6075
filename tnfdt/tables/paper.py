"""The paper's two tables from a study's results: their cells and captions.

Pure: results in, grids and frames out. Accuracies are percentages here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from tnfdt.evidence.results import Entry, Results
from tnfdt.evidence.statistics import ALPHA
from tnfdt.study.looks import run_counts
from tnfdt.study.names import dataset_name, epsilon_name, row_name
from tnfdt.study.paths import Cell, format_epsilon
from tnfdt.study.study import Augment, Study
from tnfdt.tables.grid import MISSING, Grid, Item, Number, fixed

DECIMALS = 4  # of percentages in CSV files; the tables show two
_TITLES = {
    "table1": "Comparison of the proposed approaches on multiple public datasets with the same "
    "preprocessing and learning parameters, reproduced.",
    "table2": "Evaluation of the proposed methods on larger DNN model in comparison to the "
    "vanilla version, reproduced.",
}
_METHODS = (
    "OV represents the image manipulation of the full distribution training without the use of "
    "the adapted loss function. FDT is the full distribution training with the multi label loss. "
    "TN is the tensor normalization."
)

RowKey = tuple[str, str, str]  # dataset, model, method
Marks = frozenset[tuple[RowKey, float | None]]


Entries = dict[RowKey, dict[float | None, Entry]]


def entries(results: Results, table: str) -> Entries:
    """Every number of a table, by row and by epsilon (None is the baseline)."""
    seeds: dict[RowKey, list[Cell]] = {}
    for cell in results.grid[table]:
        seeds.setdefault(cell[:3], []).append(cell)
    columns = (None, *results.epsilons)
    return {
        row: {epsilon: results.entry(cells, epsilon) for epsilon in columns}
        for row, cells in seeds.items()
    }


def significant(significance: pd.DataFrame, table: str) -> Marks:
    """The numbers of a table that differ from their vanilla row, after Benjamini-Hochberg."""
    rows = significance[(significance["table"] == table) & (significance["p_bh"] < ALPHA)]
    keys = zip(rows["dataset"], rows["model"], rows["method"], rows["epsilon"], strict=True)
    return frozenset(((d, m, x), None if pd.isna(e) else float(e)) for d, m, x, e in keys)


def table_grid(results: Results, table: str, significance: pd.DataFrame) -> Grid:
    """One of the paper's tables, filled with what the study found."""
    found, marks = entries(results, table), significant(significance, table)
    rows: list[list[Item]] = []
    for row, line in found.items():
        numbers = [
            _number(entry, spread=e is None, best=_is_best(found, row, e), mark=(row, e) in marks)
            for e, entry in line.items()
        ]
        rows.append([dataset_name(row[0]), row_name(row[1], row[2], table), *numbers])
    return Grid(
        label=table,
        caption=_caption(results, table, significance),
        header=("Dataset", "Model", "Baseline", *map(epsilon_name, results.epsilons)),
        rows=rows,
        blocks=[*Counter(row[:2] for row in found).values()],
        notes=_notes(results, found),
    )


def _number(entry: Entry, *, spread: bool, best: bool, mark: bool) -> Item:
    """The paper gives a standard deviation beside the baseline only; the CSV has them all."""
    return Number(
        value=fixed(entry.mean),
        spread=fixed(entry.sd) if spread and len(entry.values) > 1 else "",
        marks="*" * mark + "†" * entry.partial,
        bold=best,
    )


def _is_best(found: Entries, row: RowKey, epsilon: float | None) -> bool:
    """Whether a number is the highest of its block and column, ties as they are shown."""
    block = [line[epsilon] for other, line in found.items() if other[:2] == row[:2]]
    shown = [float(fixed(entry.mean)) for entry in block if entry.values]
    entry = found[row][epsilon]
    return bool(entry.values) and len(shown) > 1 and float(fixed(entry.mean)) == max(shown)


def _caption(results: Results, table: str, significance: pd.DataFrame) -> list[str]:
    study = results.study
    title = study.captions[table] or _TITLES.get(table, f"Table {table} of the study {study.name}.")
    first = [title, *([_METHODS] if table == "table1" else [])]
    first += [
        "Baseline is the accuracy without PGD, and ε represents the used clipping region for PGD.",
        _average(run_counts(results.grid[table])),
        _mark_sentence(significance, table),
    ]
    return [
        " ".join(filter(None, first)),
        training_sentence(study),
        augmentation_sentence(study, results.grid[table]),
        attack_sentence(results, results.grid[table]),
    ]


def _average(runs: str) -> str:
    if runs == "1":
        return "All results are of one run, so there is neither a standard deviation nor a test."
    where = " (the .csv says how many)" if " to " in runs else ""
    return (
        f"All results are the average over {runs} runs{where}, and ± indicates the standard "
        "deviation."
    )


def _mark_sentence(significance: pd.DataFrame, table: str) -> str:
    tested = int(significance["p"].notna().sum())
    if not tested:
        return ""
    return (
        f"* differs from the row of the same dataset and model without OV, FDT and TN: two-sided "
        f"t-test on seeds and images, p < {ALPHA:g} after Benjamini–Hochberg over the "
        f"{tested} comparisons of the study."
    )


def training_sentence(study: Study) -> str:
    """The training parameters in the words of the paper's captions."""
    recipe, images = study.training, study.limit.train
    return (
        f"Training parameters: Optimizer={recipe.optimizer.upper()}, "
        f"Momentum={recipe.momentum:g}, Weight Decay={recipe.weight_decay:g}, "
        f"Learning rate={recipe.lr:g}, Batch size={recipe.batch_size}, "
        f"Training time={recipe.epochs} epochs, Learning rate reduction after each "
        f"{recipe.lr_drop_every} epochs by {recipe.lr_drop_factor:g}"
        + (f", Training images={images:,} per dataset" if images else "")
    )


def augmentation_sentence(study: Study, cells: Sequence[Cell]) -> str:
    groups: dict[Augment, list[str]] = {}
    for dataset in dict.fromkeys(cell.dataset for cell in cells):
        names = groups.setdefault(study.datasets[dataset].augment, [])
        names.append(dataset_name(dataset))
    parts = [f"{', '.join(names)}: {_augment(augment)}" for augment, names in groups.items()]
    return f"Data augmentation: {'; '.join(parts)}"


def _augment(augment: Augment) -> str:
    parts = [f"shift by up to {augment.shift} pixels"] if augment.shift else []
    return " and ".join(parts + ["horizontal flip"] * augment.flip) or "none"


def attack_sentence(results: Results, cells: Sequence[Cell]) -> str:
    """What the numbers under ε were measured on."""
    attack = results.study.attack
    datasets = dict.fromkeys(cell.dataset for cell in cells)
    counts = [f"{results.images(d):,} {dataset_name(d)}" for d in datasets if results.images(d)]
    images = f"; test images attacked: {', '.join(counts)}" if counts else ""
    return f"PGD: {attack.steps} steps of {attack.rel_stepsize:.4g} ε{images}"


def _notes(results: Results, found: Entries) -> list[str]:
    cells = [entry for line in found.values() for entry in line.values()]
    missing, partial = sum(not c.values for c in cells), sum(c.partial for c in cells)
    notes: list[str] = []
    if missing:
        notes.append(f"{MISSING} not run yet: {missing} of {len(cells)} numbers.")
    if partial:
        notes.append(f"† from fewer {_planned(cells)} so far: {partial} of {len(cells)}.")
    return notes + left_out(results, results.outdated)


def _planned(cells: Sequence[Entry]) -> str:
    counts = {entry.planned for entry in cells}
    return "runs than planned" if len(counts) > 1 else f"than {counts.pop()} runs"


def left_out(results: Results, outdated: Sequence[Path]) -> list[str]:
    """The note on records that do not count, where there are any."""
    if not outdated:
        return []
    first = outdated[0].relative_to(results.folder)
    return [
        "Left out, because made with other settings, data or weights than the study has now: "
        f"{len(outdated)} records, the first is {first}."
    ]


def table_frame(results: Results, table: str) -> pd.DataFrame:
    """A table with names as in the study, means, SDs and the count of seeds, in percent."""
    return pd.DataFrame(list(_frame_rows(entries(results, table))))


def _frame_rows(found: Entries) -> Iterator[Mapping[str, object]]:
    for (dataset, model, method), line in found.items():
        row: dict[str, object] = {"dataset": dataset, "model": model, "method": method}
        for epsilon, entry in line.items():
            name = column(epsilon)
            row |= {name: entry.mean, f"{name}_sd": entry.sd, f"{name}_seeds": len(entry.values)}
        yield row


def column(epsilon: float | None) -> str:
    """How a column is called in CSV files: clean, eps0.1."""
    return "clean" if epsilon is None else f"eps{format_epsilon(epsilon)}"


def csv_text(frame: pd.DataFrame, decimals: int = DECIMALS) -> str:
    """A frame as CSV: fixed decimals, empty where there is nothing, the same bytes always."""

    def number(value: Any) -> str:
        return fixed(value, decimals)

    text: str = frame.to_csv(index=False, lineterminator="\n", float_format=number)
    return text
