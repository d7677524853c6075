"""The verdicts as tables for the report: one line per claim, and all evidence behind them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

import pandas as pd

from tnfdt.config import Study
from tnfdt.evidence import Evidence
from tnfdt.layout import MISSING, Grid, Item, fixed, signed
from tnfdt.names import dataset_name, model_name
from tnfdt.verdicts import VERDICTS, Verdict


def setting(study: Study, published: pd.DataFrame) -> str:
    """What the verdicts rest on, and that they are on the claims at this scale where it is another.

    `published` has the columns of config/published.csv.
    """
    ours = {table: {cell.model for cell in cells} for table, cells in study.grid.items()}
    papers = {table: {*published[published["table"] == table]["model"]} for table in study.grid}
    seeds = len(study.seeds)
    images = f"{study.limit.train:,}" if study.limit.train else "all"
    text = (
        f"Measured with {_networks(ours)}; {images} training images per dataset, "
        f"{study.training.epochs} epochs, {seeds} seed{'s' * (seeds > 1)}."
    )
    if any(ours[table] - papers[table] for table in study.grid):
        text += f" The paper has {_networks(papers)}: the verdicts are on its claims at this scale."
    return text


def _networks(models: Mapping[str, set[str]]) -> str:
    parts = {table: " and ".join(map(model_name, sorted(names))) for table, names in models.items()}
    return ", ".join(f"{names} ({table})" for table, names in parts.items() if names)


def summary_grid(verdicts: Sequence[Verdict], study: str, setting: str) -> Grid:
    """Claim by claim: the verdict, why, and the sentence of the paper it stands for."""
    counts = Counter(verdict.verdict for verdict in verdicts)
    tally = ", ".join(f"{counts[name]} {name}" for name in VERDICTS if counts[name])
    claims = [verdict.claim for verdict in verdicts]
    families = [claim.family for claim in claims]
    return Grid(
        label="claims",
        caption=[f"What the paper claims, and what study {study} says of it: {tally}.", setting],
        header=("Verdict", "Claim", "Why", "In the paper"),
        rows=[
            [v.verdict, v.claim.says, v.reason, f"“{v.claim.sentence}” ({v.claim.section})"]
            for v in verdicts
        ],
        blocks=[families.count(family) for family in dict.fromkeys(families)],
    )


def evidence_grid(verdicts: Sequence[Verdict], setting: str) -> Grid:
    """Every comparison that has results: estimate, interval, p, what could have been seen."""
    found = [(v, row) for v in verdicts for row in v.evidence if row.status != "missing"]
    groups = [verdict.claim.id for verdict, _ in found]
    return Grid(
        label="evidence",
        caption=[
            "The evidence. Estimates and intervals are in percentage points, for costs a ratio; "
            "p is two-sided and corrected by Holm's method within a family of claims; detectable "
            "is the smallest effect seen with 80 % power, before that correction.",
            setting,
        ],
        header=(
            *("Claim", "Dataset", "Model", "Tested", "Estimate", "95 % interval", "p (Holm)"),
            *("Detectable", "Paper", "Images × seeds", "Decided by", "Outcome"),
        ),
        rows=[[verdict.claim.id, *_cells(row)] for verdict, row in found],
        blocks=[groups.count(group) for group in dict.fromkeys(groups)],
    )


def _cells(row: Evidence) -> list[Item]:
    points = row.unit == "points"
    number = signed if points else (lambda value: fixed(value, 3))
    interval = f"{number(row.low)} … {number(row.high)}" if math.isfinite(row.low) else MISSING
    return [
        dataset_name(row.dataset),
        model_name(row.model),
        row.label,
        number(row.estimate),
        interval,
        "<0.001" if row.p_holm < 0.001 else fixed(row.p_holm, 3),
        fixed(row.smallest_detectable, 2 if points else 3),
        signed(row.published) if points else MISSING,
        f"{row.images:,} × {row.seeds_a}" if row.images else f"{row.seeds_a} seeds",
        row.decided_by,
        row.status,
    ]
