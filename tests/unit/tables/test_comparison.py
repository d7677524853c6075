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
    ("value", "outcome"), [(91.0, "cannot tell"), (93.5, "differs"), (88.0, "differs")]
)
def test_a_baseline_is_compared_by_welch_by_hand(value, outcome):
    # mean 91, s 1, S 3 and 0.25 of three runs: se = √(1/3 + 0.0625/3) = 0.595119, Satterthwaite's
    # df = 0.354167² / ((1/3)²/2 + 0.0208333²/2) = 2.24903, whose t is 3.8781.
    (row,) = comparison_frame(made(THREE), published(paper(value))).to_dict("records")
    assert row["difference"] == pytest.approx(91 - value)
    assert row["high"] - row["difference"] == pytest.approx(0.595119 * 3.8781, rel=1e-3)
    assert row["low"] + row["high"] == pytest.approx(2 * row["difference"])
    assert (row["outcome"], row["outcome_one_run"]) == (outcome, "")


def test_a_number_without_sd_uses_the_scatter_of_the_block():
    # vanilla 90, 91, 92 (variance 1, two df), tn 93, 93.2 (0.02, one df): s² = 2.02 / 3 on 3 df.
    robust = THREE | {("tn", 0): 0.93, ("tn", 1): 0.932}
    frame = comparison_frame(made({}, robust), published(paper(90.0, epsilon=0.1, sd=math.nan)))
    (row,) = frame.to_dict("records")
    half = 3.182446 * math.sqrt(2.02 / 3 * (1 / 3 + 1 / 3))
    assert row["high"] == pytest.approx(1.0 + half, rel=1e-5)


def test_table_2_is_read_as_three_runs_and_as_one():
    grid = {"table2": {"datasets": ["c10"], "models": ["resnet34"], "methods": ["vanilla", "tn"]}}
    values = {("vanilla", s): 0.9 + 0.001 * s for s in range(3)}
    values |= {("tn", s): 0.9 + 0.001 * s for s in range(3)}
    table = published(paper(90.45, sd=math.nan)).assign(table="table2")
    frame = comparison_frame(made(values, grid=grid), table)
    (row,) = frame.to_dict("records")
    # 90.1 − 90.45, s = 0.1 on 4 df: se 0.0816 or 0.1155; both agree to a point.
    assert (row["outcome"], row["outcome_one_run"]) == ("agrees", "agrees")
    far = comparison_frame(made(values, grid=grid), table.assign(value=90.9))
    assert list(far["outcome"]) == ["agrees"]  # t = 0.2 / 0.0816 = 2.45 > 2.132
    assert list(far["outcome_one_run"]) == ["differs"]  # 0.2 / 0.1155 = 1.73
    text = markdown(comparison_grid(far, "table2", ()))
    assert "agrees/differs" in text
    assert "does not say how many runs" in text


def test_one_seed_gives_no_interval():
    (row,) = comparison_frame(made({("vanilla", 0): 0.9}), published(paper(91.0))).to_dict(
        "records"
    )
    assert row["outcome"] == ""
    assert row["difference"] == pytest.approx(-1.0)
    assert math.isnan(row["low"])


def test_another_network_is_compared_but_not_judged():
    frame = comparison_frame(made(THREE), published(paper(91.0, model="resnet152")))
    (row,) = frame.to_dict("records")
    assert (row["model"], row["paper_model"], row["outcome"]) == ("resnet34", "resnet152", "")
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


def test_the_caption_counts_the_outcomes():
    frame = comparison_frame(made(THREE), published(paper(91.0), paper(6.28, epsilon=0.1)))
    caption = comparison_grid(frame, "table1", (0.1,)).caption[0]
    assert "0 of 1 agree, 0 differ, 1 are unclear" in caption
