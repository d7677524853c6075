"""The verdicts as files: claims.json, claims.md, and the pages of the report."""

from __future__ import annotations

import html
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import pandas as pd

from tnfdt.evidence.statistics import ALPHA
from tnfdt.study.looks import added_after, run_counts
from tnfdt.study.names import model_name
from tnfdt.study.study import Study
from tnfdt.tables.cards import card_html, card_markdown, delta, evidence_grid, says, titled
from tnfdt.tables.grid import MISSING, Grid, html_document, html_table, markdown, signed
from tnfdt.tables.multiverse import NOTE
from tnfdt.verdicts.accuracy_rows import LARGER, SMALLER
from tnfdt.verdicts.headline import Headline
from tnfdt.verdicts.judge import VERDICTS, Verdict
from tnfdt.verdicts.looks import level, look_name
from tnfdt.verdicts.multiverse import NONE, Readings, Robustness

SCHEMA = 2  # of claims.json: one more whenever a key changes its name or meaning

_MEANING = {
    "reproduced": "every row is on the claimed side, significantly where it is not a count",
    "direction only": "every estimate is on the claimed side, and at least one row stays "
    "significant after Holm's correction",
    "inconclusive": "not every row could be decided, and none is significant the other way",
    "contradicted": "at least one row is significant the other way after Holm's correction",
    "holds here": "as reproduced, but not in the paper's regime: not a verdict on the paper",
    "undecided here": "neither holds nor fails, not in the paper's regime",
    "fails here": "as contradicted, but not in the paper's regime: not a verdict on the paper",
}
_NOTES = (
    "Δ is a difference of accuracies in percentage points, for costs a ratio; a headline is the "
    "mean over the rows of a claim. Intervals are 95 %, p-values two-sided, against the value "
    "tested, from Welch's t-test on the seeds with the images' variance added. A claim needs all "
    "of its rows below {alpha:.2g}, for which no correction is due; “significant the other way” "
    "needs Holm's correction over all hypotheses. Detectable is the effect that 80 % power would "
    "have shown. Size says whether the interval excludes the paper's difference. “No room”: the "
    "margin is more than 0.3 of the distance to 0 or 100 %, or the paper's difference would lead "
    "beyond them. “Speed only”: both networks are below 1 % on the last iterate, so that Eq. 7 "
    "tells how fast an attack wins, not whether. Retention is robust ÷ clean accuracy on the "
    "same images. McNemar's p speaks of single pairs of networks and decides nothing."
)


def setting(study: Study, published: pd.DataFrame) -> str:
    """What the verdicts rest on, and that they are on the claims at this scale where it is another.

    `published` has the columns of config/published.csv.
    """
    ours = {table: {cell.model for cell in cells} for table, cells in study.grid.items()}
    papers = {table: {*published[published["table"] == table]["model"]} for table in study.grid}
    seeds = run_counts(study.cells)
    images = f"{study.limit.train:,}" if study.limit.train else "all"
    text = (
        f"Measured with {_networks(ours)}; {images} training images per dataset, "
        f"{study.training.epochs} epochs, {seeds} seed{'s' * (seeds != '1')}."
    )
    if any(papers[table] and ours[table] - papers[table] for table in study.grid):
        text += f" The paper has {_networks(papers)}: the verdicts are on its claims at this scale."
    return f"{text} {look}." if (look := look_text(study)) else text


def look_text(study: Study) -> str:
    """Which declared look this is and its level; or that seeds were added without a plan."""
    looks = study.looks
    if not looks.planned:
        added = added_after(looks.seen, len(study.seeds))
        return added and f"Not planned: {added}, for which no p-value here is corrected"
    name = look_name(looks.planned, looks.seeds).capitalize()
    return f"{name}, at a level of {level(looks):.2g}: 5 % over all looks together"


def _networks(models: Mapping[str, set[str]]) -> str:
    parts = {table: " and ".join(map(model_name, sorted(names))) for table, names in models.items()}
    return ", ".join(f"{names} ({table})" for table, names in parts.items() if names)


def claims_json(
    verdicts: Sequence[Verdict], study: Study | None = None, readings: Readings = NONE
) -> dict[str, Any]:
    """The verdicts as JSON values: numbers to 6 digits, what is not known as null.

    `counts` are of the paper's claims, `counts_ours` of questions of our own. A claim has the
    key `readings` only where the study has other readings.
    """
    entries = []
    for verdict in verdicts:
        fields = asdict(verdict)
        claim = fields.pop("claim")
        keys = ("id", "family", "title", "says", "sentence", "section", "ours")
        others = [_reading(one) for one in readings.get(claim["id"], ())]
        fields |= {"readings": others} if readings else {}
        entries.append(_plain({**{key: claim[key] for key in keys}, **fields}))
    return {
        "schema": SCHEMA,
        "alpha": level(study.looks) if study else ALPHA,
        "look": look_text(study) if study else "",
        "counts": _counts(v for v in verdicts if not v.claim.ours),
        "counts_ours": _counts(v for v in verdicts if v.claim.ours),
        "claims": entries,
    }


def _reading(one: Robustness) -> dict[str, Any]:
    return {**asdict(one), "robust": one.robust, "text": one.text}


def _counts(verdicts: Iterator[Verdict]) -> dict[str, int]:
    found = Counter(verdict.verdict for verdict in verdicts)
    return {name: found[name] for name in VERDICTS}


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        # Six digits: beyond them, versions of the libraries differ.
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value


def claims_markdown(
    verdicts: Sequence[Verdict],
    title: str = "Claims",
    setting: str = "",
    readings: Readings = NONE,
    alpha: float = ALPHA,
) -> str:
    """The verdicts as a text that can be read alone: what was reached, then a card each.

    alpha: the level of the tests, as in judge_claims.
    """
    lines = [f"# {title}", "", *([setting, ""] if setting else []), *_regime(verdicts)]
    for heading, chosen in sections(verdicts):
        lines += [f"## {heading}", "", *(f"- {line}" for line in tally(chosen)), ""]
        if found := [v for v in chosen if v.verdict != "not run"]:
            lines += [markdown(_overview(found)).rstrip(), ""]
        for verdict in shown(chosen):
            lines += card_markdown(verdict, readings.get(verdict.claim.id, ()))
    return "\n".join([*lines, "## How to read this", "", *_notes(readings, alpha), ""])


def _regime(verdicts: Sequence[Verdict]) -> list[str]:
    """What is not as in the paper, once for all cards."""
    found = dict.fromkeys(text for verdict in verdicts for text in verdict.differences)
    return [f"Not as in the paper: {'; '.join(found)}.", ""] if found else []


def _notes(readings: Readings, alpha: float) -> list[str]:
    return [_NOTES.format(alpha=alpha), *(["", NOTE] if readings else [])]


def claims_page(
    verdicts: Sequence[Verdict],
    study: str,
    setting: str,
    readings: Readings = NONE,
    alpha: float = ALPHA,
) -> str:
    """The same as a page of the report."""
    parts = []
    for heading, chosen in sections(verdicts):
        lines = "".join(f"<li>{_bold(line)}</li>" for line in tally(chosen))
        cards = "".join(card_html(v, readings.get(v.claim.id, ())) for v in shown(chosen))
        parts.append(f"<h2>{html.escape(heading)}</h2><ul>{lines}</ul>{cards}")
    body = (
        f"<p>Study {html.escape(study)}. {html.escape(' '.join([setting, *_regime(verdicts)]))}</p>"
        f"{''.join(parts)}"
        f'<p class="note">{html.escape(" ".join(filter(None, _notes(readings, alpha))))}</p>'
    )
    return html_document("claims", body)


def evidence_page(verdicts: Sequence[Verdict], setting: str, alpha: float = ALPHA) -> str:
    """The evidence of all claims in one table."""
    grid = evidence_grid(verdicts, ["The evidence.", setting, *_notes(NONE, alpha)])
    return html_document("evidence", html_table(grid))


def sections(verdicts: Sequence[Verdict]) -> Iterator[tuple[str, list[Verdict]]]:
    """The paper's claims, then questions of our own where there are any."""
    papers, ours = ([v for v in verdicts if v.claim.ours == own] for own in (False, True))
    yield "The paper's claims", papers
    if ours:
        yield "Questions of our own", ours


def _bold(line: str) -> str:
    head, _, rest = line.removeprefix("**").partition("**")
    return f"<b>{html.escape(head)}</b>{html.escape(rest)}" if rest else html.escape(line)


def tally(verdicts: Sequence[Verdict]) -> Iterator[str]:
    """How many of each verdict, those that were reached first, what was not run in one line."""
    counts = Counter(verdict.verdict for verdict in verdicts)
    for name in VERDICTS:
        if counts[name] and name != "not run":
            yield f"**{counts[name]} {name}**: {_MEANING[name]}"
    if counts["not run"]:
        yield f"**{counts['not run']} not run**: {not_run(verdicts)}"


def not_run(verdicts: Sequence[Verdict]) -> str:
    """Why the claims that were not run were not, in one line."""
    counts = Counter(why_not_run(verdict) for verdict in verdicts if verdict.verdict == "not run")
    return ", ".join(f"{count} {text}" for text, count in counts.items())


def why_not_run(verdict: Verdict) -> str:
    if not any(row.planned for row in verdict.evidence):
        return "on datasets, networks, methods or an ε that this study does not have"
    if _has_results(verdict):
        return "with results on a part of what is needed"
    if verdict.missing and all(" " in name for name in verdict.missing):  # a cell and its reason
        return "on what the records do not say, such as a GPU's memory where none was used"
    return "without results yet"


def _has_results(verdict: Verdict) -> bool:
    return any(row.status != "missing" for row in verdict.evidence)


def shown(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Those with results: verdicts that were reached first, then what is there of the others."""
    found = [verdict for verdict in verdicts if _has_results(verdict)]
    return sorted(found, key=lambda verdict: verdict.verdict == "not run")


def _overview(verdicts: Sequence[Verdict]) -> Grid:
    return Grid(
        label="claims",
        caption=(),
        header=("Verdict", "Claim", "Mean Δ [95 % interval], points", "The paper's Δ"),
        rows=[[titled(v), says(v), *deltas(v)] for v in verdicts],
        blocks=[len(verdicts)],
    )


def deltas(verdict: Verdict) -> list[str]:
    """One number a contrast, ours and the paper's; a claim on costs has none."""
    several = len(verdict.headlines) > 1
    names = [f"{one.label.partition(': ')[2]}: " if several else "" for one in verdict.headlines]
    pairs = zip(names, verdict.headlines, strict=True)
    ours = "; ".join(f"{name}{delta(one)}" for name, one in pairs)
    papers = "; ".join(_published(one) for one in verdict.headlines)
    return [ours or MISSING, papers or MISSING]


def _published(one: Headline) -> str:
    """The paper's mean difference, and that ours is another where the interval says so."""
    apart = one.size in (SMALLER, LARGER)
    return f"{signed(one.published)} (ours: {one.size})" if apart else signed(one.published)
