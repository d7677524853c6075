"""LaTeX: escaping, the paper's layout, and a document around it."""

import pytest

from tests.unit.tables.test_grid import GRID
from tnfdt.tables.grid import Grid, Number
from tnfdt.tables.latex import document, escape, table


@pytest.mark.parametrize(
    ("text", "latex"),
    [
        ("my_set", r"my\_set"),
        ("TN & FDT", r"TN \& FDT"),
        ("95 %", r"95 \%"),
        ("#1 $x$ {a}", r"\#1 \$x\$ \{a\}"),
        (r"\input{x}", r"\textbackslash{}input\{x\}"),
        ("a~b^c", r"a\textasciitilde{}b\textasciicircum{}c"),
        ("a < b > c | d", r"a \textless{} b \textgreater{} c \textbar{} d"),
        ("ε=10⁻¹", r"$\epsilon=10^{-1}$"),
        ("at 10⁻⁴ and ε", r"at $10^{-4}$ and $\epsilon$"),
        ("ours ± 1 – “so”", r"ours $\pm$ 1 -- ``so''"),
        ("é漢", "é?"),
    ],
)
def test_escape(text, latex):
    assert escape(text) == latex


def test_a_table_has_the_papers_layout():
    text = table(GRID)
    assert text.startswith(r"\begin{table*}")
    assert r"\begin{tabular}{llcc}" in text
    assert r"\textbf{Dataset} & \textbf{Model} & Baseline & $\epsilon=10^{-1}$ \\ \hline" in text
    first = (
        r"\multirow{2}{*}{a\_b} & M \& \textless{}x\textgreater{} & $92.52 \pm 0.25$ & $6.28$ \\"
    )
    assert first in text
    assert r" & M \textbar{} y & $\mathbf{93.77}^{\ast}$ & -- \\" in text
    assert r"\caption{First \& foremost.\\ \textit{Second.}}" in text
    assert r"\label{tbl:table1}" in text


def test_a_line_between_datasets_and_a_shorter_one_between_models():
    rows = [["A", "m1", "1"], ["A", "m2", "2"], ["B", "m1", "3"]]
    grid = Grid(label="x", caption=["c"], header=("D", "M", "n"), rows=rows, blocks=[1, 1, 1])
    body = table(grid).split(r"\\ \hline")[1].splitlines()
    assert r"\multirow{2}{*}{A} & m1 & 1 \\" in body
    assert body.index(r"\cline{2-3}") < body.index(r"\hline")
    assert r"\multirow{1}{*}{B} & m1 & 3 \\" in body


def test_marks():
    def item(number):
        grid = Grid(
            label="x", caption=["c"], header=("D", "M", "n"), rows=[["A", "m", number]], blocks=[1]
        )
        return table(grid).split(" & ")[-1].split(r" \\")[0]

    assert item(Number(value="1", marks="*†")) == r"$1^{\ast \dagger}$"
    assert item(Number(value="1 ± 2 (+3)", marks="out")) == r"$1 \pm 2\ (+3)^{\mathrm{out}}$"
    assert item(Number(value="–")) == "--"


def test_a_document_takes_in_other_tables_where_they_exist():
    text = document(["A\n", "B\n"], also=["audit.tex"])
    assert text.startswith(r"\documentclass")
    assert text.index("A\n") < text.index(r"\clearpage") < text.index("B\n")
    assert r"\InputIfFileExists{audit.tex}" in text
    assert text.endswith("\\end{document}\n")
