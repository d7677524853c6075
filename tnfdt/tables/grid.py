"""A table as it is read, before it is LaTeX, Markdown or HTML. Text is plain Unicode."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

MISSING = "–"
_MARKDOWN_SPECIALS = str.maketrans({c: f"\\{c}" for c in "\\`*_|[]<>"})

# Verdicts and badges: readable in grey too, and never by colour alone.
COLOURS = {
    "reproduced": "#cfe8d5",
    "direction only": "#e3eecb",
    "inconclusive": "#fdf3c7",
    "contradicted": "#f6cfc4",
    "not run": "#e6e6e6",
}
# Under a class of its own: the report's front page takes these tables in.
_STYLE = (
    ".tnfdt{font-family:system-ui,sans-serif;font-size:14px;color:#111;line-height:1.35}"
    ".tnfdt table{border-collapse:collapse;margin:0}"
    ".tnfdt caption{caption-side:top;text-align:left;max-width:70em;padding-bottom:.8em}"
    ".tnfdt th,.tnfdt td{padding:.25em .7em;text-align:left;vertical-align:top}"
    ".tnfdt thead th{border-top:2px solid #111;border-bottom:1px solid #111}"
    ".tnfdt tr.first td{border-top:1px solid #999}"
    ".tnfdt p.note{font-size:12px;color:#333;max-width:75em}"
)


@dataclass(frozen=True, kw_only=True)
class Number:
    """One number of a table: its text, its spread, its marks (such as * and †)."""

    value: str
    spread: str = ""
    marks: str = ""
    bold: bool = False

    def plain(self) -> str:
        return f"{self.value} ± {self.spread}" if self.spread else self.value


Item = str | Number


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Rows under a header. `blocks` says how many rows each group has, `step` how many lines
    belong together within it. Caption and notes are paragraphs."""

    label: str
    caption: Sequence[str]
    header: Sequence[str]
    rows: Sequence[Sequence[Item]]
    blocks: Sequence[int]
    notes: Sequence[str] = ()
    step: int = 1

    def starts(self) -> set[int]:
        """The rows that begin a block."""
        return {sum(self.blocks[:i]) for i in range(len(self.blocks))}


def fixed(value: float | None, digits: int = 2) -> str:
    """A number with a fixed count of decimals, without a negative zero; – if there is none."""
    if value is None or value != value:
        return MISSING
    text = f"{value:.{digits}f}"
    return text.removeprefix("-") if float(text) == 0 else text


def signed(value: float | None, digits: int = 2) -> str:
    """A difference, with its sign."""
    text = fixed(value, digits)
    return text if text == MISSING or text.startswith("-") else f"+{text}"


def markdown(grid: Grid) -> str:
    """A table in GitHub's Markdown, its caption above and its notes below."""
    table = ["| " + " | ".join(map(_md, grid.header)) + " |"]
    table.append("|" + "|".join(["---"] * 2 + [":---:"] * (len(grid.header) - 2)) + "|")
    table += ["| " + " | ".join(map(_md_item, row)) + " |" for row in grid.rows]
    return "\n\n".join([*map(_md, grid.caption), "\n".join(table), *map(_md, grid.notes)]) + "\n"


def _md(text: str) -> str:
    return text.translate(_MARKDOWN_SPECIALS)


def _md_item(item: Item) -> str:
    if isinstance(item, str):
        return _md(item)
    text = f"**{item.plain()}**" if item.bold else item.plain()
    return text + _md(item.marks)


def html_page(*grids: Grid) -> str:
    """The tables as a page of their own, with nothing to load."""
    return text_page(grids[0].label, "<br>".join(map(html_table, grids)))


def text_page(title: str, body: str) -> str:
    """HTML in the looks of the tables."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>{html.escape(title)}</title><style>{_STYLE}</style></head>\n"
        f'<body><div class="tnfdt">{body}</div></body></html>\n'
    )


def html_table(grid: Grid) -> str:
    caption = "<br>".join(map(html.escape, grid.caption))
    head = "".join(f"<th>{html.escape(text)}</th>" for text in grid.header)
    notes = "".join(f'<p class="note">{html.escape(note)}</p>' for note in grid.notes)
    return (
        f"<table><caption>{caption}</caption>\n<thead><tr>{head}</tr></thead>\n<tbody>\n"
        + "\n".join(_html_rows(grid))
        + f"\n</tbody></table>{notes}\n"
    )


def _html_rows(grid: Grid) -> Iterator[str]:
    starts = grid.starts()
    for index, row in enumerate(grid.rows):
        cells = "".join(map(_html_item, row))
        yield f'<tr class="first">{cells}</tr>' if index in starts else f"<tr>{cells}</tr>"


def _html_item(item: Item) -> str:
    if isinstance(item, str):
        colour = COLOURS.get(item)
        style = f' style="background:{colour}"' if colour else ""
        return f"<td{style}>{html.escape(item)}</td>"
    text = html.escape(item.plain())
    marks = f"<sup>{html.escape(item.marks)}</sup>" if item.marks else ""
    return f"<td>{f'<b>{text}</b>' if item.bold else text}{marks}</td>"
