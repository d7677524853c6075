"""The paper's two tables from a study's results: what stands in each cell, and the caption.

Pure: results in, grids and frames out. Accuracies are percentages here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from tnfdt.evidence.results import Results
from tnfdt.evidence.statistics import ALPHA, sample_sd
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


@dataclass(frozen=True, kw_only=True)
class Entry:
    """The runs behind one number of a table, in percent, one per seed that is there."""

    values: tuple[float, ...]
    planned: int

    @property
    def mean(self) -> float | None:
        return sum(self.values) / len(self.values) if self.values else None

    @property
    def sd(self) -> float | None:
        return sample_sd(self.values) if len(self.values) > 1 else None

    @property
    def partial(self) -> bool:
        return 0 < len(self.values) < self.planned


Entries = dict[RowKey, dict[float | None, Entry]]


def entries(results: Results, table: str) -> Entries:
    """Every number of a table, by row and by epsilon (None is the baseline)."""
    seeds: dict[RowKey, list[Cell]] = {}
    for cell in results.grid[table]:
        seeds.setdefault((cell.dataset, cell.model, cell.method), []).append(cell)
    columns = (None, *results.epsilons)
    return {
        row: {epsilon: _entry(results, cells, epsilon) for epsilon in columns}
        for row, cells in seeds.items()
    }


def _entry(results: Results, cells: Sequence[Cell], epsilon: float | None) -> Entry:
    found = [results.accuracy(cell, epsilon) for cell in cells]
    return Entry(values=tuple(100 * a for a in found if a is not None), planned=len(cells))


def significant(significance: pd.DataFrame, table: str) -> Marks:
    """The numbers of a table that differ from their vanilla row, after Benjamini-Hochberg."""
    rows = significance[(significance["table"] == table) & (significance["p_bh"] < ALPHA)]
    keys = zip(rows["dataset"], rows["model"], rows["method"], rows["epsilon"], strict=True)
    return frozenset(((d, m, x), None if pd.isna(e) else float(e)) for d, m, x, e in keys)


def table_grid(results: Results, table: str, significance: pd.DataFrame) -> Grid:
    """One of the paper's tables, filled with what the study found."""
    found, marks = entries(results, table), significant(significance, table)
    best = _best(found)
    rows: list[list[Item]] = []
    for row, line in found.items():
        numbers = [
            _number(entry, spread=e is None, best=(row, e) in best, mark=(row, e) in marks)
            for e, entry in line.items()
        ]
        rows.append([dataset_name(row[0]), row_name(row[1], row[2], table), *numbers])
    return Grid(
        label=table,
        caption=_caption(results, table, significance),
        header=("Dataset", "Model", "Baseline", *map(epsilon_name, results.epsilons)),
        rows=rows,
        blocks=_blocks(found),
        notes=_notes(results, found),
    )


def _number(entry: Entry, *, spread: bool, best: bool, mark: bool) -> Item:
    """The paper gives a standard deviation beside the baseline only; the CSV has them all."""
    if entry.mean is None:
        return Number(value=MISSING)
    return Number(
        value=fixed(entry.mean),
        spread=fixed(entry.sd) if spread and entry.sd is not None else "",
        marks="*" * mark + "†" * entry.partial,
        bold=best,
    )


def _blocks(found: Entries) -> list[int]:
    """How many rows each dataset and model have."""
    blocks = [(dataset, model) for dataset, model, _ in found]
    return [blocks.count(block) for block in dict.fromkeys(blocks)]


def _best(found: Entries) -> set[tuple[RowKey, float | None]]:
    """The numbers that are the highest of their block and column, ties as they are shown."""
    shown: dict[tuple[str, str, float | None], dict[RowKey, float]] = {}
    for row, line in found.items():
        for epsilon, entry in line.items():
            if entry.mean is not None:
                block = shown.setdefault((row[0], row[1], epsilon), {})
                block[row] = float(fixed(entry.mean))
    return {
        (row, key[2])
        for key, block in shown.items()
        for row, value in block.items()
        if value == max(block.values()) and len(block) > 1
    }


def _caption(results: Results, table: str, significance: pd.DataFrame) -> list[str]:
    study = results.study
    title = study.captions[table] or _TITLES.get(table, f"Table {table} of the study {study.name}.")
    first = [title, *([_METHODS] if table == "table1" else [])]
    first += [
        "Baseline is the accuracy without PGD, and ε represents the used clipping region for PGD.",
        _average(len(study.seeds)),
        _mark_sentence(significance, table),
    ]
    return [
        " ".join(filter(None, first)),
        training_sentence(study),
        augmentation_sentence(study, results.grid[table]),
        attack_sentence(results, results.grid[table]),
    ]


def _average(seeds: int) -> str:
    if seeds == 1:
        return "All results are of one run, so there is neither a standard deviation nor a test."
    return f"All results are the average over {seeds} runs, and ± indicates the standard deviation."


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
        notes.append(
            f"† from fewer than {len(results.seeds)} runs so far: {partial} of {len(cells)}."
        )
    if results.outdated:
        notes.append(
            f"{len(results.outdated)} records were made with other settings than the study has "
            f"now and are left out, the first is {results.outdated[0].relative_to(results.folder)}."
        )
    return notes


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
    shown = frame.copy()
    for name in shown.columns:
        if pd.api.types.is_float_dtype(shown[name].dtype):
            shown[name] = [_csv_number(value, decimals) for value in shown[name]]
    text: str = shown.to_csv(index=False, lineterminator="\n")
    return text


def _csv_number(value: float, decimals: int) -> str:
    return "" if pd.isna(value) else fixed(float(value), decimals)
