"""The paper's claims and numbers as data, and the verdicts on them as text.

The rules by which evidence becomes a verdict stand in tnfdt/verdicts.py.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd

from tnfdt.config import UserError
from tnfdt.contrasts import Results, significance
from tnfdt.evidence import ContrastTest, CostTest, Evidence
from tnfdt.statistics import ALPHA
from tnfdt.validation import read_yaml, validated
from tnfdt.verdicts import VERDICTS, Claim, Verdict, evaluate

__all__ = [
    "VERDICTS",
    "Claim",
    "Evidence",
    "Results",
    "Verdict",
    "claims_json",
    "claims_markdown",
    "evaluate",
    "load_claims",
    "load_published",
    "significance",
]

PUBLISHED_COLUMNS = ["table", "dataset", "model", "method", "metric", "epsilon", "value", "sd"]
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


def load_claims(path: Path) -> list[Claim]:
    """Read and check a claims file; a UserError names file, key and what is allowed."""
    families = validated(read_yaml(path), "claims", str(path))["families"]
    claims = [
        _claim(id_, name, family["title"], entry, f"{path}: families.{name}.claims.{id_}")
        for name, family in families.items()
        for id_, entry in family["claims"].items()
    ]
    for id_, count in Counter(claim.id for claim in claims).items():
        if count > 1:
            raise UserError(f"{path}: claim {id_} stands in {count} families; rename one")
    return claims


def _claim(id_: str, family: str, title: str, entry: dict[str, Any], where: str) -> Claim:
    if not entry["contrasts"] and not entry["costs"]:
        raise UserError(f"{where}: has nothing to test; give it contrasts or costs")
    for number, test in enumerate(entry["contrasts"]):
        _check_contrast(test, f"{where}.contrasts.{number}")
    contrasts = [ContrastTest(**t | {"datasets": tuple(t["datasets"])}) for t in entry["contrasts"]]
    costs = [CostTest(**test) for test in entry["costs"]]
    texts = {key: entry[key] for key in ("says", "sentence", "section")}
    return Claim(
        id=id_, family=family, title=title, **texts, contrasts=tuple(contrasts), costs=tuple(costs)
    )


def _check_contrast(test: dict[str, Any], where: str) -> None:
    """Which optional keys go with which values; nothing is compared with itself."""
    if test["a"] == test["b"]:
        raise UserError(f"{where}: a and b are both {test['a']}; name two methods")
    rules = {
        "epsilon": ("metric", ("robust",), True),
        "margin": ("direction", ("not_less", "not_greater"), True),
        "ratio": ("direction", ("greater",), False),
    }
    for key, (other, values, required) in rules.items():
        allowed = test[other] in values
        if key in test and not allowed:
            raise UserError(f"{where}: {key} is only for {other} {' or '.join(values)}")
        if key not in test and allowed and required:
            raise UserError(f"{where}: {other} {test[other]} needs the key {key}")


def load_published(path: Path) -> pd.DataFrame:
    """The paper's numbers in percent; epsilon is nan for clean, sd where none is given."""
    try:
        frame = pd.read_csv(path, dtype=dict.fromkeys(PUBLISHED_COLUMNS[:5], str))
    except FileNotFoundError:
        raise UserError(f"{path} does not exist; restore it") from None
    except (OSError, ValueError, OverflowError) as error:
        raise UserError(f"{path} is not a CSV file ({error}); mend or restore it") from None
    if list(frame.columns) != PUBLISHED_COLUMNS:
        raise UserError(f"{path}: the columns must be {','.join(PUBLISHED_COLUMNS)}")
    return _checked_published(frame, path)


def _checked_published(frame: pd.DataFrame, path: Path) -> pd.DataFrame:
    for column in ("epsilon", "value", "sd"):
        numbers = pd.to_numeric(frame[column], errors="coerce")
        _refuse(frame[column].notna() & numbers.isna(), f"{column} is not a number", path)
        frame[column] = numbers.astype(float)
    _refuse(frame[PUBLISHED_COLUMNS[:5]].isna().any(axis=1), "a name is missing", path)
    _refuse(~frame["metric"].isin(["clean", "robust"]), "metric is not clean or robust", path)
    _refuse(~frame["value"].between(0, 100), "value is not a percentage from 0 to 100", path)
    wild = frame["sd"].notna() & ~frame["sd"].between(0, 100)
    _refuse(wild, "sd is negative or above 100", path)
    outside = frame["epsilon"].notna() & ~frame["epsilon"].between(0, 1)
    _refuse(outside, "epsilon is not 0 to 1", path)
    clean = frame["metric"] == "clean"
    _refuse(clean != frame["epsilon"].isna(), "robust needs an epsilon, clean has none", path)
    _refuse(frame.duplicated(PUBLISHED_COLUMNS[:6]), "stands twice", path)
    return frame


def _refuse(bad: pd.Series[bool], what: str, path: Path) -> None:
    if bad.any():
        line = int(bad.to_numpy().argmax()) + 2  # the header is line 1
        raise UserError(f"{path}: line {line}: {what}")


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
    return "\n".join([*head, *_summary(verdicts), *_sections(verdicts), *_NOTES])


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
        yield from _evidence_table(verdict)
        yield from _footnotes(verdict)


_HEADER = (
    "| Dataset | Model | Tested | a | b | Estimate [95 % interval] | p (Holm) | Detectable "
    "| Paper | McNemar p per seed | Images × seeds | Decided by | Outcome |"
)


def _evidence_table(verdict: Verdict) -> Iterator[str]:
    rows = [row for row in verdict.evidence if row.status != "missing"]
    if rows:
        yield _HEADER
        yield "|---" * (_HEADER.count("|") - 1) + "|"
        yield from (f"| {' | '.join(_evidence_cells(row))} |" for row in rows)


def _evidence_cells(row: Evidence) -> list[str]:
    points = row.unit == "points"
    estimate, low, high = (
        _number(x, "+.2f" if points else ".3f") for x in (row.estimate, row.low, row.high)
    )
    seeds = f"{row.seeds_a}" if row.seeds_a == row.seeds_b else f"{row.seeds_a} and {row.seeds_b}"
    return [
        row.dataset,
        row.model,
        row.label,
        *(_number(x, ".2f" if points else ".4g") for x in (row.a_value, row.b_value)),
        f"{estimate} [{low}, {high}]" if math.isfinite(row.low) else estimate,
        _p(row.p_holm),
        _number(row.smallest_detectable, ".2f" if points else ".0%"),
        _number(row.published, "+.2f"),
        ", ".join(map(_p, row.mcnemar_p)) or "–",
        f"{row.images} × {seeds}" if row.images else f"{seeds} seeds",
        row.decided_by,
        row.status,
    ]


def _number(value: float, form: str) -> str:
    return f"{value:{form}}".replace("-", "−") if math.isfinite(value) else "–"


def _p(value: float) -> str:
    return "<0.001" if value < 0.001 else _number(value, ".3f")


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


_NOTES = [
    "",
    "## How to read this",
    "",
    "Estimates, intervals, the smallest effect detectable with 80 % power (before Holm's "
    "correction) and the paper's own difference are in percentage points, for costs a ratio. "
    "a and b are the two methods' accuracies in percent, or costs. p-values are two-sided, "
    "against the value tested, and corrected by Holm's method within each section; a comparison "
    "is significant below 0.05. They take into account the seeds and the images; where the two "
    "methods' seeds scatter differently by more than a factor of two, Welch's form decides. "
    "McNemar's p speaks of single pairs of networks and the sign-flip test of these datasets "
    "only; neither decides.",
    "",
]
