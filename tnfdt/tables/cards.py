"""A claim as a card: verdict, regime, headline beside the paper's number, and its rows folded."""

from __future__ import annotations

import html
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from tnfdt.study.names import dataset_name, method_name, model_name
from tnfdt.tables.grid import COLOURS, MISSING, Grid, Item, fixed, html_table, markdown, signed
from tnfdt.verdicts.accuracy_rows import SPEED_ONLY
from tnfdt.verdicts.headline import Headline
from tnfdt.verdicts.hypotheses import ClaimRow
from tnfdt.verdicts.judge import Verdict
from tnfdt.verdicts.multiverse import Robustness
from tnfdt.verdicts.regime import ANY, PAPER

MISSING_NAMED = 6  # cells named in the text; the JSON names all


def titled(verdict: Verdict) -> str:
    speed = any(SPEED_ONLY in row.guards for row in verdict.evidence)
    return f"{verdict.verdict} ({SPEED_ONLY})" if speed else verdict.verdict


def says(verdict: Verdict) -> str:
    """The claim, and on which of its datasets this study has it."""
    rows, text = verdict.evidence, verdict.claim.says
    names = dict.fromkeys(dataset_name(row.dataset) for row in rows if row.planned)
    if not names or all(name in text for name in names):
        return text
    count = len({row.dataset for row in rows})
    part = f" ({len(names)} of its {count} datasets)" if len(names) < count else ""
    return f"{text.removesuffix('.')} on {', '.join(names)}{part}."


def delta(one: Headline) -> str:
    """The estimate and its interval."""
    return f"{signed(one.estimate)}{interval(one.low, one.high)}"


def interval(low: float, high: float) -> str:
    """After an estimate; nothing where it is not known."""
    return f" [{signed(low)}, {signed(high)}]" if math.isfinite(low) else ""


def headline_text(one: Headline) -> str:
    """The mean difference with its interval, beside the paper's."""
    over = f"mean of {one.rows} rows" if one.rows > 1 else "one row"
    if one.rows < one.planned:
        over += f" of {one.planned}"
    p = f"; p = {_p(one.p)}".replace("= <", "< ") if math.isfinite(one.p) else ""
    text = f"{delta(one)} points ({one.label}; {over}{p})"
    if math.isfinite(one.published):
        text += f"; the paper has {signed(one.published)}"
    return text + (f" ({one.size})" if one.size else "")


def _facts(verdict: Verdict, readings: Sequence[Robustness]) -> Iterator[tuple[str, str]]:
    """Pairs of a word and a sentence."""
    for one in verdict.headlines:
        yield "Δ", f"{headline_text(one)}."
    yield "Rows", f"{verdict.reason}."
    yield "Regime", _regime(verdict)
    if verdict.baseline:
        yield "Baseline", f"{verdict.baseline}."
    for name, text in (
        ("Retention", _retention(verdict.evidence)),
        ("Power", _power(verdict)),
        ("The paper by its own ±", _trial(verdict.evidence)),
        ("Missing", _missing(verdict.missing)),
    ):
        if text:
            yield name, text
    yield from _readings(readings)


def _readings(found: Sequence[Robustness]) -> Iterator[tuple[str, str]]:
    """What other readings of the paper say, where the study has them."""
    for one in found:
        beside = f"{one.contrast}: " if len(found) > 1 else ""
        yield "Readings", f"{beside}{one.text}."


def _regime(verdict: Verdict) -> str:
    if verdict.regime == ANY:
        return "none needed: a count is the same at every scale."
    if verdict.regime == PAPER:
        return "the paper's network, complete dataset, recipe and attack."
    return "scaled: not a verdict on the paper."


def _retention(rows: Sequence[ClaimRow]) -> str:
    """How much of its clean accuracy each network keeps under the attack, row by row."""
    texts = [
        f"{dataset_name(row.dataset)} {fixed(row.retention_a, 1)} % ({method_name(row.a)}) and "
        f"{fixed(row.retention_b, 1)} % ({method_name(row.b)}{_on(row)})"
        for row in rows
        if math.isfinite(row.retention_a) and row.role == "claim"
    ]
    return f"robust ÷ clean accuracy on the same images: {'; '.join(texts)}." if texts else ""


def _on(row: ClaimRow) -> str:
    return f" on {dataset_name(row.against)}" if row.against else ""


def _power(verdict: Verdict) -> str:
    """What the rows would have shown with 80 % power, for and against the claim."""
    rows = [row for row in verdict.evidence if math.isfinite(row.detectable)]
    texts = []
    for unit, amount in (("points", _points), ("ratio", _percent)):
        chosen = [row for row in rows if row.unit == unit]
        if chosen:
            seen = _span([row.detectable for row in chosen], amount)
            after = _span([row.detectable_holm for row in chosen], amount)
            texts.append(
                f"{seen} would have been seen in the claimed direction, {after} against it "
                f"(after Holm's correction over {verdict.hypotheses} hypotheses)"
            )
    return f"with 80 % power {'; '.join(texts)}." if texts else ""


def _points(value: float) -> str:
    return f"{value:.2f} points" if value < 100 else "no possible difference"


def _percent(value: float) -> str:
    return f"{100 * value:.0f} %"


def _span(values: Sequence[float], amount: Callable[[float], str]) -> str:
    low, high = amount(min(values)), amount(max(values))
    return low if low == high else f"{low} to {high}"


def _trial(rows: Sequence[ClaimRow]) -> str:
    known = [row for row in rows if row.paper_says and row.planned]
    tried = [row for row in known if row.paper_says != "no ±"]
    if not tried:
        return "cannot be said: the paper gives no ± for these numbers." if known else ""
    sure = sum(row.paper_says == "established" for row in tried)
    others = sum(row.paper_says == "opposed" for row in tried)
    text = f"{sure} of {len(tried)} rows are established by the published means and SDs (n = 3)"
    return text + (f", {others} significantly the other way." if others else ".")


def _missing(names: Sequence[str]) -> str:
    here = [name for name in names if not name.endswith("(not in this study)")]
    if not here:
        return ""
    more = len(here) - MISSING_NAMED
    return ", ".join(here[:MISSING_NAMED]) + (f" and {more} more." if more > 0 else ".")


def card_markdown(verdict: Verdict, readings: Sequence[Robustness]) -> Iterator[str]:
    yield from (f"### {titled(verdict)}: {says(verdict)}", "", f"> {_quote(verdict)}", "")
    yield from (f"- **{name}**: {text}" for name, text in _facts(verdict, readings))
    rows = evidence_grid([verdict])
    if rows.rows:
        yield from ("", f"<details><summary>{_compared(rows)}</summary>", "")
        yield from (markdown(rows).rstrip(), "", "</details>")
    yield ""


def _quote(verdict: Verdict) -> str:
    return f"“{verdict.claim.sentence}” ({verdict.claim.section})"


def _compared(rows: Grid) -> str:
    count = len(rows.rows)
    return f"{count} comparison{'s' * (count > 1)}"


def card_html(verdict: Verdict, readings: Sequence[Robustness]) -> str:
    title, text, quote = map(html.escape, (titled(verdict), says(verdict), _quote(verdict)))
    colour = COLOURS.get(verdict.verdict, "#ffffff")
    facts = "".join(
        f"<dt>{html.escape(name)}</dt><dd>{html.escape(fact)}</dd>"
        for name, fact in _facts(verdict, readings)
    )
    rows = evidence_grid([verdict])
    table = f"<details><summary>{_compared(rows)}</summary>{html_table(rows)}</details>"
    return (
        f'<section class="card"><h3><span class="verdict" style="background:{colour}">'
        f"{title}</span> {text}</h3>"
        f"<blockquote>{quote}</blockquote><dl>{facts}</dl>{table if rows.rows else ''}</section>\n"
    )


HEADER = (
    *("Dataset", "Model", "Tested", "a", "b", "Estimate", "95 % interval", "p", "p (Holm)"),
    *("Detectable", "after Holm", "Paper", "Size", "Paper's own ±", "Retention a, b"),
    *("McNemar p per seed", "Images × seeds", "Outcome"),
)


def evidence_grid(verdicts: Sequence[Verdict], caption: Sequence[str] = ()) -> Grid:
    """Every comparison that has results: estimate, interval, p, what could have been seen."""
    found = [(v, row) for v in verdicts for row in v.evidence if row.status != "missing"]
    named = len(verdicts) > 1
    return Grid(
        label="evidence",
        caption=caption,
        header=(*(("Claim",) if named else ()), *HEADER),
        rows=[[*([v.claim.id] if named else []), *_cells(row)] for v, row in found],
        blocks=[*Counter(verdict.claim.id for verdict, _ in found).values()],
    )


def _cells(row: ClaimRow) -> list[Item]:
    points = row.unit == "points"
    number = signed if points else (lambda value: fixed(value, 3))
    interval = f"{number(row.low)} … {number(row.high)}" if math.isfinite(row.low) else MISSING
    counts = dict.fromkeys((row.seeds_a, row.seeds_b) if row.b else (row.seeds_a,))
    seeds = " and ".join(map(str, counts))
    digits = 2 if points else 3
    return [
        dataset_name(row.dataset),
        model_name(row.model),
        row.label,
        *(_value(value, points) for value in (row.a_value, row.b_value)),
        number(row.estimate),
        interval,
        _p(row.p),
        _p(row.p_holm),
        fixed(row.detectable, digits),
        fixed(row.detectable_holm, digits),
        signed(row.published) if points else MISSING,
        row.size or MISSING,
        row.paper_says or MISSING,
        _pair(row.retention_a, row.retention_b),
        ", ".join(map(_p, row.mcnemar_p)) or MISSING,
        f"{row.images:,} × {seeds}" if row.images else f"{seeds} seed{'s' * (seeds != '1')}",
        _outcome(row),
    ]


def _value(value: float, points: bool) -> str:
    if math.isnan(value):
        return MISSING
    return fixed(value, 2) if points else f"{value:.4g}"


def _pair(a: float, b: float) -> str:
    return f"{fixed(a, 1)}, {fixed(b, 1)}" if math.isfinite(a) else MISSING


def _outcome(row: ClaimRow) -> str:
    notes = [guard for guard in row.guards if guard != row.status]
    return f"{row.status} ({', '.join(notes)})" if notes else row.status


def _p(value: float) -> str:
    return "<0.001" if value < 0.001 else fixed(value, 3)
