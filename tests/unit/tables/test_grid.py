"""Numbers and tables as text."""

import math

import pytest

from tnfdt.tables.grid import Grid, Number, fixed, html_page, markdown, signed

GRID = Grid(
    label="table1",
    caption=["First & foremost.", "Second."],
    header=("Dataset", "Model", "Baseline", "ε=10⁻¹"),
    rows=[
        ["a_b", "M & <x>", Number(value="92.52", spread="0.25"), Number(value="6.28")],
        ["a_b", "M | y", Number(value="93.77", bold=True, marks="*"), Number(value="–")],
    ],
    blocks=[2],
    notes=["– not run yet: 1 of 4 numbers."],
)


@pytest.mark.parametrize(
    ("value", "text"),
    [(92.516, "92.52"), (5.0, "5.00"), (-0.001, "0.00"), (None, "–"), (math.nan, "–")],
)
def test_fixed(value, text):
    assert fixed(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(1.0, "+1.00"), (-2.345, "-2.35"), (-0.0001, "+0.00"), (math.nan, "–")]
)
def test_signed(value, text):
    assert signed(value) == text


def test_markdown():
    lines = markdown(GRID).splitlines()
    assert lines[0] == "First & foremost."
    assert "| Dataset | Model | Baseline | ε=10⁻¹ |" in lines
    assert r"| a\_b | M & \<x\> | 92.52 ± 0.25 | 6.28 |" in lines
    assert r"| a\_b | M \| y | **93.77**\* | – |" in lines
    assert lines[-1] == "– not run yet: 1 of 4 numbers."


def test_html_is_escaped_and_needs_nothing_from_elsewhere():
    page = html_page(GRID)
    assert "M &amp; &lt;x&gt;" in page
    assert "<b>93.77</b><sup>*</sup>" in page
    assert "src=" not in page
    assert "http" not in page


def test_verdicts_have_a_colour_and_their_word():
    grid = Grid(label="x", caption=["c"], header=("V", "C"), rows=[["not run", "s"]], blocks=[1])
    assert '<td style="background:#e6e6e6">not run</td>' in html_page(grid)
