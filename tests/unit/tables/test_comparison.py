"""Our numbers beside the paper's."""

import math

import pandas as pd
import pytest

from tests.unit.tables.test_paper import THREE, made
from tnfdt.tables.comparison import comparison_frame, comparison_grid
from tnfdt.tables.grid import markdown

COLUMNS = ["table", "dataset", "model", "method", "metric", "epsilon", "value", "sd"]


def published(*rows):
    return pd.DataFrame(rows, columns=COLUMNS)


def paper(value, model="resnet34", method="vanilla", epsilon=math.nan, sd=0.25):
    metric = "clean" if math.isnan(epsilon) else "robust"
    return ("table1", "c10", model, method, metric, epsilon, value, sd)


@pytest.mark.parametrize(
    ("value", "within"), [(91.0, "yes"), (86.04, "yes"), (86.02, "no"), (95.97, "no")]
)
def test_the_prediction_interval_by_hand(value, within):
    # mean 91, s 1, S 3: 91 ± 4.302653 · √(4/3) = 91 ± 4.968276
    (row,) = comparison_frame(made(THREE), published(paper(value))).to_dict("records")
    assert row["low"] == pytest.approx(86.031724, abs=1e-5)
    assert row["high"] == pytest.approx(95.968276, abs=1e-5)
    assert row["difference"] == pytest.approx(91 - value)
    assert row["within"] == within


def test_one_seed_gives_no_interval():
    (row,) = comparison_frame(made({("vanilla", 0): 0.9}), published(paper(91.0))).to_dict(
        "records"
    )
    assert row["within"] == ""
    assert row["difference"] == pytest.approx(-1.0)
    assert math.isnan(row["low"])


def test_another_network_is_compared_but_not_judged():
    frame = comparison_frame(made(THREE), published(paper(91.0, model="resnet152")))
    (row,) = frame.to_dict("records")
    assert (row["model"], row["paper_model"], row["within"]) == ("resnet34", "resnet152", "")
    lines = markdown(comparison_grid(frame, "table1", (0.1,))).splitlines()
    assert "| C10 | ResNet-152 | paper | 91.00 ± 0.25 | – |" in lines
    assert "| C10 | ResNet-34 | ours | 91.00 ± 1.00 (+0.00) | – |" in lines


def test_the_same_network_wins_over_others():
    frame = comparison_frame(
        made(THREE), published(paper(91.0, model="resnet152"), paper(90.0, model="resnet34"))
    )
    assert list(frame["paper_model"]) == ["resnet34"]


def test_what_is_missing_is_missing():
    frame = comparison_frame(
        made({}), published(paper(91.0), paper(6.28, epsilon=0.1, sd=math.nan))
    )
    lines = markdown(comparison_grid(frame, "table1", (0.1,))).splitlines()
    assert "| C10 | ResNet-34 | paper | 91.00 ± 0.25 | 6.28 |" in lines
    assert "| C10 |  | ours | – | – |" in lines


def test_a_study_the_paper_does_not_know():
    frame = comparison_frame(made(THREE), published())
    grid = comparison_grid(frame, "table1", (0.1,))
    assert "no published numbers" in markdown(grid)


def test_the_caption_counts_those_within():
    frame = comparison_frame(made(THREE), published(paper(91.0), paper(6.28, epsilon=0.1)))
    assert "1 of 1 do" in comparison_grid(frame, "table1", (0.1,)).caption[0]
