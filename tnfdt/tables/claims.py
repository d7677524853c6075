"""The verdicts as files: claims.json, claims.md, and the pages of the report."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import pandas as pd

from tnfdt.evidence.statistics import ALPHA
from tnfdt.study.names import dataset_name, model_name
from tnfdt.study.study import Study
from tnfdt.tables.grid import MISSING, Grid, Item, fixed, markdown, signed
from tnfdt.verdicts.hypotheses import Evidence
from tnfdt.verdicts.judge import VERDICTS, Verdict

MISSING_NAMED = 6  # cells named in the text; the JSON names all

_MEANING = {
    "reproduced": "every comparison is significant in the claimed direction",
    "direction only": "every estimate is on the claimed side, but not every one is significant "
    "or as large as claimed",
    "inconclusive": "not every comparison could be decided, and none is significant in the "
    "other direction",
    "contradicted": "at least one comparison is significant in the other direction",
    "not run": "results are missing",
}
_NOTES = (
    "Estimates, intervals, the smallest effect detectable with 80 % power (before Holm's "
    "correction) and the paper's own difference are in percentage points, for costs a ratio. "
    "a and b are the two methods' accuracies in percent, or costs. p-values are two-sided, "
    "against the value tested, and corrected by Holm's method within each section; a comparison "
    "is significant below 0.05. They take into account the seeds and the images; where the two "
    "methods' seeds scatter differently by more than a factor of two, Welch's form decides. "
    "McNemar's p speaks of single pairs of networks and the sign-flip test of these datasets "
    "only; neither decides."
)


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


def claims_json(verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """The verdicts as JSON values: numbers to 6 digits, what is not known as null."""
    entries = []
    for verdict in verdicts:
        fields = asdict(verdict)
        claim = fields.pop("claim")
        texts = {k: claim[k] for k in ("id", "family", "title", "says", "sentence", "section")}
        entries.append(_plain({**texts, **fields}))
    counts = Counter(verdict.verdict for verdict in verdicts)
    return {
        "schema": 1,
        "alpha": ALPHA,
        "counts": {name: counts[name] for name in VERDICTS},
        "claims": entries,
    }


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        # Six digits: beyond them, versions of the libraries differ.
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value


def claims_markdown(verdicts: Sequence[Verdict], title: str = "Claims", setting: str = "") -> str:
    """The verdicts as a text that can be read alone: summary, then each claim's evidence."""
    head = [f"# {title}", "", *([setting, ""] if setting else [])]
    notes = ("", "## How to read this", "", _NOTES, "")
    return "\n".join([*head, *_summary(verdicts), *_sections(verdicts), *notes])


def _summary(verdicts: Sequence[Verdict]) -> Iterator[str]:
    counts = Counter(verdict.verdict for verdict in verdicts)
    for name in VERDICTS:
        if counts[name]:
            yield f"- **{counts[name]} {name}**: {_MEANING[name]}"
    yield from ("", "| Verdict | Claim | Why |", "|---|---|---|")
    for verdict in verdicts:
        yield f"| **{verdict.verdict}** | {verdict.claim.says} | {verdict.reason} |"


def _sections(verdicts: Sequence[Verdict]) -> Iterator[str]:
    title = ""
    for verdict in verdicts:
        if verdict.claim.title != title:
            title = verdict.claim.title
            yield from ("", f"## {title}")
        yield from ("", f"### {verdict.verdict}: {verdict.claim.says}", "")
        yield f"> “{verdict.claim.sentence}” ({verdict.claim.section})"
        yield from ("", f"{verdict.reason[0].upper()}{verdict.reason[1:]}.", "")
        if any(row.status != "missing" for row in verdict.evidence):
            yield markdown(evidence_grid([verdict])).rstrip()
        yield from _footnotes(verdict)


def _footnotes(verdict: Verdict) -> Iterator[str]:
    if verdict.across:
        tests = (f"{t.hypothesis} ({t.cells} cells) p = {_p(t.p)}" for t in verdict.across)
        yield from ("", f"Sign-flip test over these cells: {'; '.join(tests)}.")
    others = {r.published_model for r in verdict.evidence if r.published_model not in ("", r.model)}
    if others:
        yield from ("", f"The paper's differences are of another network, {others.pop()}.")
    if verdict.missing:
        named = ", ".join(verdict.missing[:MISSING_NAMED])
        more = len(verdict.missing) - MISSING_NAMED
        yield from ("", f"Missing: {named}" + (f" and {more} more." if more > 0 else "."))


def summary_grid(verdicts: Sequence[Verdict], study: str, setting: str) -> Grid:
    """Each verdict that was reached, why, and the sentence of the paper; the rest is one line."""
    counts = Counter(verdict.verdict for verdict in verdicts)
    tally = ", ".join(f"{counts[name]} {name}" for name in VERDICTS if counts[name])
    reached = [verdict for verdict in verdicts if verdict.verdict != "not run"]
    families = [verdict.claim.family for verdict in reached]
    return Grid(
        label="claims",
        caption=[f"What the paper claims, and what study {study} says of it: {tally}.", setting],
        header=("Verdict", "Claim", "Why", "In the paper"),
        rows=[
            [v.verdict, v.claim.says, v.reason, f"“{v.claim.sentence}” ({v.claim.section})"]
            for v in reached
        ],
        blocks=[families.count(family) for family in dict.fromkeys(families)],
        notes=_not_run(len(verdicts) - len(reached), len(verdicts)),
    )


def _not_run(count: int, claims: int) -> list[str]:
    why = "they need results that this study does not have; claims.md names them"
    return [f"Not run: {count} of the paper's {claims} claims; {why}."] if count else []


def evidence_grid(verdicts: Sequence[Verdict], caption: Sequence[str] = ()) -> Grid:
    """Every comparison that has results: estimate, interval, p, what could have been seen."""
    found = [(v, row) for v in verdicts for row in v.evidence if row.status != "missing"]
    groups = [verdict.claim.id for verdict, _ in found]
    return Grid(
        label="evidence",
        caption=caption,
        header=(
            *("Claim", "Dataset", "Model", "Tested", "a", "b", "Estimate", "95 % interval"),
            *("p (Holm)", "Detectable", "Paper", "McNemar p per seed", "Images × seeds"),
            *("Decided by", "Outcome"),
        ),
        rows=[[verdict.claim.id, *_cells(row)] for verdict, row in found],
        blocks=[groups.count(group) for group in dict.fromkeys(groups)],
    )


def evidence_page(verdicts: Sequence[Verdict], setting: str) -> Grid:
    """The evidence of all claims under one caption."""
    return evidence_grid(verdicts, ["The evidence.", setting, _NOTES])


def _cells(row: Evidence) -> list[Item]:
    points = row.unit == "points"
    number = signed if points else (lambda value: fixed(value, 3))
    interval = f"{number(row.low)} … {number(row.high)}" if math.isfinite(row.low) else MISSING
    seeds = f"{row.seeds_a}" if row.seeds_a == row.seeds_b else f"{row.seeds_a} and {row.seeds_b}"
    return [
        dataset_name(row.dataset),
        model_name(row.model),
        row.label,
        *(fixed(x, 2) if points else f"{x:.4g}" for x in (row.a_value, row.b_value)),
        number(row.estimate),
        interval,
        _p(row.p_holm),
        fixed(row.smallest_detectable, 2 if points else 3),
        signed(row.published) if points else MISSING,
        ", ".join(map(_p, row.mcnemar_p)) or MISSING,
        f"{row.images:,} × {seeds}" if row.images else f"{seeds} seeds",
        row.decided_by,
        row.status,
    ]


def _p(value: float) -> str:
    return "<0.001" if value < 0.001 else fixed(value, 3)
