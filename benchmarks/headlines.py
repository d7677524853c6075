"""The speeds that the project answers for, as one table: before, target and measured."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.ratios import Row

__all__ = ["HEADLINES", "Headline", "table"]


@dataclass(frozen=True)
class Headline:
    """One line: the rows, by the beginning of their names, whose numbers stand in it."""

    name: str
    before: str  # when the targets were set
    rows: tuple[str, ...]


HEADLINES = (
    Headline(
        "PGD against Foolbox, the same adversarials: ResNet-34 cifar / imagenet stem, wrn10_1",
        "1.70 / 1.70 / 1.55",
        tuple(
            f"attack speed / Foolbox's ({which}"
            for which in ("resnet34, cifar", "resnet34, imagenet", "wrn10_1")
        ),
    ),
    Headline(
        "FullDistribution against the PIL loop, one thread: each / after",
        "45 / 189",
        ("FullDistribution batch, each", "FullDistribution batch, after"),
    ),
    Headline("epoch in the harness / bare loop", "1.04", ("epoch in the harness",)),
    Headline("training with tracking / without", "1.02", ("training with tracking",)),
    Headline("first step after, s", "3.9", ("processor seconds from job start",)),
    Headline(
        "dry run of 10,000 cells, s / MiB",
        "42 / 2,150",
        ("dry run of 10,000 cells, processor seconds", "dry run of 10,000 cells, MiB"),
    ),
    Headline(
        "aten kernels per step on the pretended device: fdt / vanilla",
        "361 / 330",
        ("aten kernels per step, fdt", "aten kernels per step, vanilla"),
    ),
)


def table(rows: list[Row]) -> str:
    """The headlines of which all rows were measured, as Markdown."""
    lines = ["| what | before | target | measured | |", "|---|---|---|---|---|"]
    for headline in HEADLINES:
        found = [row for start in headline.rows for row in rows if row.name.startswith(start)]
        if len(found) == len(headline.rows):
            lines.append(_line(headline, found))
    return "\n".join(lines)


def _line(headline: Headline, rows: list[Row]) -> str:
    targets = " / ".join(row.target for row in rows)
    measured = " / ".join(f"{row.ratio:,.4g}" for row in rows)
    met = "ok" if all(row.ok for row in rows) else "missed"
    return f"| {headline.name} | {headline.before} | {targets} | {measured} | {met} |"
