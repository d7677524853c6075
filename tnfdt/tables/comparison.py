"""Our numbers beside the paper's: do they agree to one point?

Judged are numbers of the paper's own model with at least two seeds. Table 1's baselines are
means of three runs with an SD: Welch's test. Its other columns have none, so that both sides
are taken to scatter as our methods of the block do. Table 2 does not say its runs: three and
one are both given.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pandas as pd

from tnfdt.evidence.results import Results
from tnfdt.evidence.statistics import pooled_seed_variance
from tnfdt.study.names import dataset_name, epsilon_name, row_name
from tnfdt.tables.grid import MISSING, Grid, Item, Number, fixed, signed
from tnfdt.tables.paper import Entries, Entry, entries
from tnfdt.verdicts.published import MARGIN, agreement
from tnfdt.verdicts.published import Number as Published

COLUMNS = [
    *("table", "dataset", "model", "method", "paper_model", "metric", "epsilon"),
    *("paper", "paper_sd", "ours", "ours_sd", "seeds", "difference", "low", "high"),
    *("outcome", "outcome_one_run"),
]
_MARKS = {"agrees": "agrees", "differs": "differs", "cannot tell": "unclear"}


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

    `published` has the columns of config/published.csv. low and high are of the difference;
    `outcome` is agrees, differs or cannot tell, or empty where the model is another one, or
    there are no two seeds to say.
    """
    rows = [
        row
        for table in results.grid
        for pair, found in _pairs(results, published, table)
        for row in _pair_rows(published, pair, found)
    ]
    return pd.DataFrame(rows, columns=COLUMNS)


def _pairs(results: Results, published: pd.DataFrame, table: str) -> Iterator[tuple[Pair, Entries]]:
    """The paper's own model where the study has it, else all that the paper has in its place."""
    found = entries(results, table)
    for dataset, model, method in found:
        same = published[
            (published["table"] == table)
            & (published["dataset"] == dataset)
            & (published["method"] == method)
        ]
        models = list(dict.fromkeys(same["model"]))
        for paper_model in [model] if model in models else models:
            names = {"table": table, "dataset": dataset, "model": model, "method": method}
            yield Pair(**names, paper_model=paper_model), found


def _pair_rows(published: pd.DataFrame, pair: Pair, found: Entries) -> Iterator[dict[str, object]]:
    chosen = published[
        (published["table"] == pair.table)
        & (published["dataset"] == pair.dataset)
        & (published["method"] == pair.method)
        & (published["model"] == pair.paper_model)
    ]
    values = {
        None if pd.isna(epsilon) else float(epsilon): Published(float(value), float(sd))
        for epsilon, value, sd in zip(chosen["epsilon"], chosen["value"], chosen["sd"], strict=True)
    }
    for epsilon, entry in found[pair.dataset, pair.model, pair.method].items():
        if epsilon in values:
            yield {
                **vars(pair),
                "metric": "clean" if epsilon is None else "robust",
                "epsilon": "" if epsilon is None else f"{epsilon:g}",
                **_compare(entry, values[epsilon], pair, _pooled(found, pair, epsilon)),
            }


def _pooled(found: Entries, pair: Pair, epsilon: float | None) -> tuple[float, int]:
    """Variance between the seeds of the methods of a block, in one column."""
    block = [line for row, line in found.items() if row[:2] == (pair.dataset, pair.model)]
    return pooled_seed_variance([line[epsilon].values for line in block])


def _compare(
    entry: Entry, paper: Published, pair: Pair, pooled: tuple[float, int]
) -> dict[str, object]:
    row: dict[str, object] = {
        "paper": paper.value,
        "paper_sd": paper.sd,
        "ours": entry.mean,
        "ours_sd": entry.sd,
        "seeds": len(entry.values),
        "difference": math.nan if entry.mean is None else entry.mean - paper.value,
        "low": math.nan,
        "high": math.nan,
        "outcome": "",
        "outcome_one_run": "",
    }
    if len(entry.values) < 2 or pair.model != pair.paper_model:
        return row
    if pair.table == "table2":
        row["outcome_one_run"] = agreement(entry.values, paper, pooled, runs=1).outcome
    return row | vars(agreement(entry.values, paper, pooled))


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
    """Mean ± SD (difference), marked with whether it agrees; two marks if that hangs on runs."""
    if not line["seeds"]:
        return MISSING
    spread = "" if pd.isna(line["ours_sd"]) else f" ± {fixed(line['ours_sd'])}"
    text = f"{fixed(line['ours'])}{spread} ({signed(line['difference'])})"
    outcomes = dict.fromkeys(filter(None, (line["outcome"], line["outcome_one_run"])))
    return Number(value=text, marks="/".join(_MARKS[outcome] for outcome in outcomes))


def _caption(frame: pd.DataFrame) -> list[str]:
    judged = frame[frame["outcome"] != ""]
    counts = {word: int((judged["outcome"] == word).sum()) for word in _MARKS}
    text = (
        "The paper's numbers and ours, in percent: mean ± standard deviation over our runs, and "
        "in brackets our mean minus the published value."
    )
    if not len(judged):
        return [text + " Whether they agree can be said of the paper's own model and two runs."]
    text += (
        f" Two one-sided tests at ± {MARGIN:g} point: {counts['agrees']} of {len(judged)} agree, "
        f"{counts['differs']} differ, {counts['cannot tell']} are unclear."
    )
    if (judged["outcome_one_run"] != "").any():
        text += (
            " The paper does not say how many runs these numbers are of: where three and one "
            "give two answers, both stand."
        )
    return [text]
