"""Our numbers beside the paper's: is a published value one more draw of what we measured?

A published number is compared with the interval in which one further training is expected,
mean ± t·s·√(1 + 1/S); that needs the paper's own model and at least two seeds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pandas as pd

from tnfdt.evidence.results import Results
from tnfdt.evidence.statistics import prediction_interval
from tnfdt.study.names import dataset_name, epsilon_name, row_name
from tnfdt.tables.grid import MISSING, Grid, Item, Number, fixed, signed
from tnfdt.tables.paper import Entry, entries

COLUMNS = [
    *("table", "dataset", "model", "method", "paper_model", "metric", "epsilon"),
    *("paper", "paper_sd", "ours", "ours_sd", "seeds", "difference", "low", "high", "within"),
]


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A row of ours and the row of the paper it stands beside."""

    table: str
    dataset: str
    model: str
    method: str
    paper_model: str


def comparison_frame(results: Results, published: pd.DataFrame) -> pd.DataFrame:
    """One row per published number that the study has a counterpart of, in percent.

    `published` has the columns of config/published.csv. `within` is yes or no, or empty where
    the model is another one, or there are no two seeds to say.
    """
    rows = [
        row
        for table in results.grid
        for pair, line in _pairs(results, published, table)
        for row in _pair_rows(published, pair, line)
    ]
    return pd.DataFrame(rows, columns=COLUMNS)


def _pairs(
    results: Results, published: pd.DataFrame, table: str
) -> Iterator[tuple[Pair, dict[float | None, Entry]]]:
    """The paper's own model where the study has it, else all that the paper has in its place."""
    for (dataset, model, method), line in entries(results, table).items():
        same = published[
            (published["table"] == table)
            & (published["dataset"] == dataset)
            & (published["method"] == method)
        ]
        models = list(dict.fromkeys(same["model"]))
        for paper_model in [model] if model in models else models:
            yield (
                Pair(
                    table=table,
                    dataset=dataset,
                    model=model,
                    method=method,
                    paper_model=paper_model,
                ),
                line,
            )


def _pair_rows(
    published: pd.DataFrame, pair: Pair, line: dict[float | None, Entry]
) -> Iterator[dict[str, object]]:
    chosen = published[
        (published["table"] == pair.table)
        & (published["dataset"] == pair.dataset)
        & (published["method"] == pair.method)
        & (published["model"] == pair.paper_model)
    ]
    values = {
        None if pd.isna(epsilon) else float(epsilon): (float(value), float(sd))
        for epsilon, value, sd in zip(chosen["epsilon"], chosen["value"], chosen["sd"], strict=True)
    }
    for epsilon, entry in line.items():
        if epsilon in values:
            yield {
                **vars(pair),
                "metric": "clean" if epsilon is None else "robust",
                "epsilon": "" if epsilon is None else f"{epsilon:g}",
                **_compare(entry, *values[epsilon], same=pair.model == pair.paper_model),
            }


def _compare(entry: Entry, paper: float, paper_sd: float, *, same: bool) -> dict[str, object]:
    low = high = math.nan
    if same and len(entry.values) > 1:
        low, high = prediction_interval(entry.values)
    return {
        "paper": paper,
        "paper_sd": paper_sd,
        "ours": entry.mean,
        "ours_sd": entry.sd,
        "seeds": len(entry.values),
        "difference": math.nan if entry.mean is None else entry.mean - paper,
        "low": low,
        "high": high,
        "within": "" if math.isnan(low) else "yes" if low <= paper <= high else "no",
    }


def comparison_grid(frame: pd.DataFrame, table: str, epsilons: Sequence[float]) -> Grid:
    """One of the tables with two lines a row: the paper's numbers, and ours beneath them."""
    columns = {"": "Baseline", **{f"{epsilon:g}": epsilon_name(epsilon) for epsilon in epsilons}}
    chosen = frame[frame["table"] == table]
    rows: list[list[Item]] = []
    groups: list[tuple[str, str]] = []
    for key, lines in chosen.groupby(["dataset", "model", "method", "paper_model"], sort=False):
        dataset, model, method, paper_model = map(str, key)
        rows += _two_lines(dataset, (model, paper_model), method, table, lines, [*columns])
        groups += [(dataset, model)] * 2
    nothing = [[MISSING, "no published numbers", *[MISSING] * (len(columns) + 1)]]
    return Grid(
        label=f"comparison_{table}",
        caption=_caption(chosen),
        header=("Dataset", "Model", "", *columns.values()),
        rows=rows or nothing,
        blocks=[groups.count(group) for group in dict.fromkeys(groups)] or [1],
        step=2,
    )


def _two_lines(
    dataset: str,
    models: tuple[str, str],
    method: str,
    table: str,
    lines: pd.DataFrame,
    columns: Sequence[str],
) -> list[list[Item]]:
    ours, paper = (row_name(model, method, table) for model in models)
    found = {str(line["epsilon"]): line for _, line in lines.iterrows()}
    first = [_paper(found[c]) if c in found else MISSING for c in columns]
    second = [_ours(found[c]) if c in found else MISSING for c in columns]
    name = dataset_name(dataset)
    return [[name, paper, "paper", *first], [name, "" if ours == paper else ours, "ours", *second]]


def _paper(line: pd.Series) -> Item:
    spread = "" if pd.isna(line["paper_sd"]) else fixed(line["paper_sd"])
    return Number(value=fixed(line["paper"]), spread=spread)


def _ours(line: pd.Series) -> Item:
    """Mean ± SD (difference), marked with the prediction interval's answer."""
    if not line["seeds"]:
        return MISSING
    spread = "" if pd.isna(line["ours_sd"]) else f" ± {fixed(line['ours_sd'])}"
    text = f"{fixed(line['ours'])}{spread} ({signed(line['difference'])})"
    return Number(value=text, marks={"yes": "in", "no": "out"}.get(line["within"], ""))


def _caption(frame: pd.DataFrame) -> list[str]:
    judged = frame[frame["within"] != ""]
    inside = int((judged["within"] == "yes").sum())
    text = (
        "The paper's numbers and ours, in percent: mean ± standard deviation over our runs, and "
        "in brackets our mean minus the published value."
    )
    if len(judged):
        text += (
            " “in” and “out” say whether the published value lies within the 95 % prediction "
            f"interval of one more run of ours: {inside} of {len(judged)} do."
        )
    else:
        text += " A prediction interval needs the paper's own model and two runs of it."
    return [text]
