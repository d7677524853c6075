"""Tables as LaTeX, in the paper's own layout, for pdflatex with packages of texlive-latex-extra."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from tnfdt.tables.grid import MISSING, Grid, Item

_SPECIALS = {
    **{letter: f"\\{letter}" for letter in "{}&%$#_"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "ε": r"$\epsilon$",
    "α": r"$\alpha$",
    "Δ": r"$\Delta$",
    "±": r"$\pm$",
    "×": r"$\times$",
    "−": r"$-$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "∞": r"$\infty$",
    "†": r"$\dagger$",
    "→": r"$\to$",
    "–": "--",
    "’": "'",
    **{"“": "``", "”": "''", '"': "''"},
}
_POWER_OR_LETTER = re.compile("(ε=)?10([⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+)|.", re.DOTALL)
_PLAIN = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")

PREAMBLE = r"""\documentclass[10pt]{article}
\usepackage[a4paper,landscape,margin=15mm]{geometry}
\usepackage[utf8]{inputenc}
\usepackage{multirow}
\usepackage[font=small]{caption}
"""


def escape(text: str) -> str:
    """Plain text as LaTeX; what pdflatex has no letter for becomes a question mark."""
    return _POWER_OR_LETTER.sub(_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    letter, exponent = match[0], match[2]
    if exponent:
        variable = r"\epsilon=" if match[1] else ""
        return f"${variable}10^{{{exponent.translate(_PLAIN)}}}$"
    known = letter.isascii() or "\xa0" < letter <= "\xff"
    return _SPECIALS.get(letter, letter if known else "?")


def table(grid: Grid, *, size: str = "", stretch: float = 1.15) -> str:
    """A `table*` with caption, label and notes, to be \\input into a document."""
    columns = "ll" + "c" * (len(grid.header) - 2)
    head = " & ".join([_bold(text) for text in grid.header[:2]] + [*map(escape, grid.header[2:])])
    lines = [
        r"\begin{table*}[htbp]",
        r"\centering",
        rf"\caption{{{_caption(grid.caption)}}}",
        rf"\label{{tbl:{grid.label}}}",
        *([rf"\{size}"] if size else []),
        rf"\renewcommand{{\arraystretch}}{{{stretch:g}}}",
        rf"\begin{{tabular}}{{{columns}}}",
        rf"{head} \\ \hline",
        *_rows(grid),
        r"\end{tabular}",
        *_notes(grid.notes),
        r"\end{table*}",
    ]
    return "\n".join(lines) + "\n"


def document(tables: Sequence[str], *, also: Sequence[str] = ()) -> str:
    """A document that compiles as it is; files in `also` are taken in where they exist."""
    inputs = [rf"\InputIfFileExists{{{name}}}{{\clearpage}}{{}}" for name in also]
    body = "\n\\clearpage\n".join([*tables, *inputs])
    return PREAMBLE + "\\begin{document}\n" + body + "\\end{document}\n"


def _caption(paragraphs: Sequence[str]) -> str:
    first, *rest = map(escape, paragraphs)
    return r"\\ ".join([first, *(rf"\textit{{{text}}}" for text in rest)])


def _notes(notes: Sequence[str]) -> list[str]:
    body = "\n".join(rf"\par {escape(note)}" for note in notes)
    box = rf"\begin{{minipage}}{{0.95\linewidth}}\footnotesize {body}\end{{minipage}}"
    return [rf"\par\smallskip{box}"] if notes else []


def _rows(grid: Grid) -> Iterator[str]:
    starts, spans = grid.starts(), _spans(grid)
    for index, row in enumerate(grid.rows):
        if index and index in starts:
            yield r"\hline" if index in spans else rf"\cline{{2-{len(row)}}}"
        first = (
            rf"\multirow{{{spans[index]}}}{{*}}{{{escape(str(row[0]))}}}" if index in spans else ""
        )
        together = grid.step > 1 and (index + 1) % grid.step == 0
        yield " & ".join([first, *map(_item, row[1:])]) + (r" \\[2.5pt]" if together else r" \\")


def _spans(grid: Grid) -> dict[int, int]:
    """Rows at which the first column changes, and for how many rows it stays."""
    changes = [i for i, row in enumerate(grid.rows) if i == 0 or row[0] != grid.rows[i - 1][0]]
    ends = [*changes[1:], len(grid.rows)]
    return {start: end - start for start, end in zip(changes, ends, strict=True)}


def _item(item: Item) -> str:
    if isinstance(item, str):
        return escape(item)
    if item.value == MISSING:
        return "--"
    text = item.plain().replace("±", r"\pm").replace(" (", r"\ (")
    marks = item.marks.replace("*", r"\ast ").replace("†", r"\dagger ").strip()
    marks = rf"\mathrm{{{marks}}}" if marks.isalpha() else marks
    text = rf"\mathbf{{{text}}}" if item.bold else text
    return f"${text}^{{{marks}}}$" if marks else f"${text}$"


def _bold(text: str) -> str:
    return rf"\textbf{{{escape(text)}}}"
