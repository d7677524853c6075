"""Our numbers beside the paper's: do they agree to one point?

Judged are numbers of the paper's own model with at least two seeds. Table 1's baselines are
means of three runs with an SD: Welch's test. Its other columns have none, so that both sides
are taken to scatter as our methods of the block do. Table 2 does not say its runs: three and
one are both given.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import product

import pandas as pd

from tnfdt.evidence.results import Entry, Results
from tnfdt.evidence.statistics import pooled_seed_variance
from tnfdt.study.names import dataset_name, epsilon_name, row_name
from tnfdt.tables.grid import MISSING, Grid, Item, Number, fixed, signed
from tnfdt.tables.paper import entries
from tnfdt.verdicts.published import MARGIN, PaperNumber, Published, agreement, published_values

COLUMNS = [
    *("table", "dataset", "model", "method", "paper_model", "metric", "epsilon"),
    *("paper", "paper_sd", "ours", "ours_sd", "seeds", "difference", "low", "high"),
    *("outcome", "outcome_one_run"),
]
_MARKS = {"agrees": "agrees", "differs": "differs", "cannot tell": "unclear"}


def comparison_frame(results: Results, published: pd.DataFrame) -> pd.DataFrame:
    """One row per published number that the study has a counterpart of, in percent.

    `published` has the columns of config/published.csv. low and high are of the difference;
    `outcome` is agrees, differs or cannot tell, or empty where the model is another one, or
    there are no two seeds to say.
    """
    papers = published_values(published)
    rows = [row for table in results.grid for row in _table_rows(results, papers, table)]
    return pd.DataFrame(rows, columns=COLUMNS)


def _table_rows(results: Results, papers: Published, table: str) -> Iterator[dict[str, object]]:
    found = entries(results, table)
    for (dataset, model, method), line in found.items():
        block = [other for row, other in found.items() if row[:2] == (dataset, model)]
        models = _paper_models(papers, table, dataset, model, method)
        for paper_model, (epsilon, entry) in product(models, line.items()):
            metric = "clean" if epsilon is None else "robust"
            paper = papers.get((table, dataset, paper_model, method, metric, epsilon))
            if paper is None:
                continue
            row = _compared(entry, paper)
            if model == paper_model and len(entry.values) > 1:
                pooled = pooled_seed_variance([other[epsilon].values for other in block])
                row |= agreement(entry.values, paper, pooled, table)
            place = (table, dataset, model, method, paper_model, metric)
            shown = "" if epsilon is None else f"{epsilon:g}"
            yield dict(zip(COLUMNS, (*place, shown), strict=False)) | row


def _paper_models(
    papers: Published, table: str, dataset: str, model: str, method: str
) -> list[str]:
    """The paper's own model where the study has it, else all that the paper has in its place."""
    same = [key for key in papers if key[:2] == (table, dataset) and key[3] == method]
    models = list(dict.fromkeys(key[2] for key in same))
    return [model] if model in models else models


def _compared(entry: Entry, paper: PaperNumber) -> dict[str, object]:
    return {
        "paper": paper.value,
        "paper_sd": paper.sd,
        "ours": entry.mean,
        "ours_sd": entry.sd,
        "seeds": len(entry.values),
        "difference": entry.mean - paper.value,
        "low": math.nan,
        "high": math.nan,
        "outcome": "",
        "outcome_one_run": "",
    }


def comparison_grid(frame: pd.DataFrame, table: str, epsilons: Sequence[float]) -> Grid:
    """One of the tables with two lines a row: the paper's numbers, and ours beneath them."""
    columns = {"": "Baseline", **{f"{epsilon:g}": epsilon_name(epsilon) for epsilon in epsilons}}
    chosen = frame[frame["table"] == table]
    rows: list[list[Item]] = []
    groups: list[tuple[str, str]] = []
    for key, lines in chosen.groupby(["dataset", "model", "method", "paper_model"], sort=False):
        dataset, model, method, paper_model = map(str, key)
        name, ours = dataset_name(dataset), row_name(model, method, table)
        paper = row_name(paper_model, method, table)
        found = {str(line["epsilon"]): line for _, line in lines.iterrows()}
        first, second = (
            [show(found[column]) if column in found else MISSING for column in columns]
            for show in (_paper, _ours)
        )
        rows.append([name, paper, "paper", *first])
        rows.append([name, "" if ours == paper else ours, "ours", *second])
        groups += [(dataset, model)] * 2
    return Grid(
        label=f"comparison_{table}",
        caption=_caption(chosen),
        header=("Dataset", "Model", "", *columns.values()),
        rows=rows or [[MISSING, "no published numbers", *[MISSING] * (len(columns) + 1)]],
        blocks=[*Counter(groups).values()] or [1],
        step=2,
    )


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
    counts = Counter(judged["outcome"])
    text = (
        "The paper's numbers and ours, in percent: mean ± standard deviation over our runs, and "
        "in brackets our mean minus the published value."
    )
    if not len(judged):
        return [text + " Agreement is tested only for the paper's own model and at least two runs."]
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
