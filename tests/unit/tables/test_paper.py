"""The paper's tables from results whose every number is known."""

import csv
import io
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests import synthetic
from tnfdt.evidence.contrasts import significance
from tnfdt.evidence.read import load_results
from tnfdt.evidence.results import Attacked, Results
from tnfdt.tables.grid import markdown
from tnfdt.tables.latex import table as latex_table
from tnfdt.tables.paper import csv_text, entries, significant, table_frame, table_grid

ROW = ("c10", "resnet34", "tn")
NO_TESTS = pd.DataFrame(
    columns=["table", "dataset", "model", "method", "epsilon", "p", "p_bh"], dtype=float
)


def made(accuracies, robust=None, **changes):
    """Results with given clean accuracies {(method, seed): value}, and robust ones at 0.1."""
    study = synthetic.study(
        **{
            "grid": {
                "table1": {
                    "datasets": ["c10"],
                    "models": ["resnet34"],
                    "methods": ["vanilla", "fdt", "tn"],
                }
            },
            "attack": {"epsilons": [0.1]},
        }
        | changes
    )
    cells = {(cell.method, cell.seed): cell for cell in study.cells}
    attacked = {
        (cells[key], 0.1): Attacked(
            path=Path("x.json"),
            record={"metrics": {"curve": [value]}},
            scores=np.full(8, value),
        )
        for key, value in (robust or {}).items()
    }
    return Results(
        study=study,
        folder=Path("results"),
        trained={cells[key]: {"metrics": {"accuracy": v}} for key, v in accuracies.items()},
        clean={},
        attacked=attacked,
        outdated=(),
    )


THREE = {("vanilla", 0): 0.90, ("vanilla", 1): 0.91, ("vanilla", 2): 0.92}


def test_mean_and_standard_deviation_by_hand():
    entry = entries(made(THREE), "table1")["c10", "resnet34", "vanilla"][None]
    assert entry.mean == pytest.approx(91.0)
    assert entry.sd == pytest.approx(1.0)  # ddof 1: squares 1 + 0 + 1 over 2
    assert not entry.partial


def test_one_seed_has_no_deviation_and_is_marked():
    results = made({("tn", 1): 0.95})
    entry = entries(results, "table1")[ROW][None]
    assert (entry.mean, entry.partial) == (95.0, True)
    assert np.isnan(entry.sd)
    number = table_grid(results, "table1", NO_TESTS).rows[2][2]
    assert (number.value, number.spread, number.marks) == ("95.00", "", "†")


def test_a_study_of_one_seed_has_no_deviation_and_no_dagger():
    grid = table_grid(made({("tn", 0): 0.95}, seeds=[0]), "table1", NO_TESTS)
    assert (grid.rows[2][2].value, grid.rows[2][2].marks) == ("95.00", "")
    assert "of one run" in grid.caption[0]
    assert "±" not in latex_table(grid)


def test_missing_numbers_are_shown_and_counted():
    grid = table_grid(made(THREE), "table1", NO_TESTS)
    assert [item.value for item in grid.rows[0][2:]] == ["91.00", "–"]
    assert [item.value for item in grid.rows[1][2:]] == ["–", "–"]
    assert grid.notes == ["– not run yet: 5 of 6 numbers."]


def test_partial_numbers_are_marked_and_counted():
    grid = table_grid(made(THREE | {("tn", 0): 0.9}), "table1", NO_TESTS)
    assert grid.rows[2][2].marks == "†"
    assert grid.notes[1] == "† from fewer than 3 runs so far: 1 of 6."


def test_left_out_records_are_told():
    results = made(THREE)
    results = Results(**vars(results) | {"outdated": (Path("results/train/x/record.json"),)})
    assert "train/x/record.json" in table_grid(results, "table1", NO_TESTS).notes[-1]


def test_best_of_each_column_is_bold_and_ties_are_all_bold():
    values = {("vanilla", 0): 0.90004, ("fdt", 0): 0.90001, ("tn", 0): 0.8}
    robust = {("vanilla", 0): 0.1, ("tn", 0): 0.2}
    grid = table_grid(made(values, robust, seeds=[0]), "table1", NO_TESTS)
    bold = [[item.bold for item in row[2:]] for row in grid.rows]
    assert bold == [[True, False], [True, False], [False, True]]


def test_a_number_alone_in_its_column_is_not_the_best_of_anything():
    grid = table_grid(made({("tn", 0): 0.9}, seeds=[0]), "table1", NO_TESTS)
    assert not grid.rows[2][2].bold


def test_significance_marks_come_from_the_adjusted_p():
    tests = pd.DataFrame(
        [
            ("table1", *ROW, np.nan, 0.001, 0.01),
            ("table1", *ROW, 0.1, 0.04, 0.06),
            ("table2", "c10", "resnet34", "fdt", 0.1, 0.001, 0.01),
        ],
        columns=["table", "dataset", "model", "method", "epsilon", "p", "p_bh"],
    )
    assert significant(tests, "table1") == {(ROW, None)}
    robust = {(method, seed): 0.2 for method in ("vanilla", "tn") for seed in range(3)}
    clean = dict.fromkeys(robust, 0.9)
    grid = table_grid(made(clean, robust), "table1", tests)
    assert [item.marks for item in grid.rows[2][2:]] == ["*", ""]
    assert "over the 3 comparisons" in grid.caption[0]


def test_the_deviation_stands_beside_the_baseline_only():
    robust = {("vanilla", seed): 0.1 + seed / 10 for seed in range(3)}
    grid = table_grid(made(THREE, robust), "table1", NO_TESTS)
    assert [item.spread for item in grid.rows[0][2:]] == ["1.00", ""]


def test_the_caption_tells_the_recipe_the_augmentation_and_the_images():
    robust = {("vanilla", seed): 0.1 for seed in range(3)}
    caption = table_grid(made(THREE, robust), "table1", NO_TESTS).caption
    assert caption[1] == (
        "Training parameters: Optimizer=SGD, Momentum=0.9, Weight Decay=0.0005, Learning rate=0.1, "
        "Batch size=100, Training time=150 epochs, Learning rate reduction after each 30 epochs "
        "by 0.1"
    )
    assert caption[2] == "Data augmentation: C10: shift by up to 4 pixels and horizontal flip"
    assert caption[3] == "PGD: 40 steps of 0.03333 ε; test images attacked: 8 C10"


def test_the_csv_has_fixed_decimals_names_of_the_study_and_blanks_for_nothing():
    rows = list(csv.DictReader(io.StringIO(csv_text(table_frame(made(THREE), "table1")))))
    assert rows[0] == {
        "dataset": "c10",
        "model": "resnet34",
        "method": "vanilla",
        "clean": "91.0000",
        "clean_sd": "1.0000",
        "clean_seeds": "3",
        "eps0.1": "",
        "eps0.1_sd": "",
        "eps0.1_seeds": "0",
    }


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    study = synthetic.study(training={"epochs": 3})
    folder = synthetic.write(study, tmp_path_factory.mktemp("results"))
    return load_results(study, folder.parent, synthetic.machine())


def test_table_2_writes_fdt_before_tn_and_parts_the_models(results):
    grid = table_grid(results, "table2", significance(results))
    assert [row[1] for row in grid.rows] == [
        "ResNet-152",
        "ResNet-152 & FDT & TN",
        "WideResNet-28-10",
        "WideResNet-28-10 & FDT & TN",
    ]
    assert grid.blocks == [2, 2]
    text = latex_table(grid)
    assert r"\multirow{4}{*}{C100}" in text
    assert r"\cline{2-7}" in text


def test_tex_and_markdown_show_the_same_numbers(results):
    grid = table_grid(results, "table1", significance(results))
    number = re.compile(r"(?<![\d.])\d+\.\d\d(?![\d.])")
    tex = number.findall(latex_table(grid).split(r"\hline", 1)[1])
    assert tex == number.findall(markdown(grid).split("---", 1)[1])
    assert len(tex) == 10 * 6  # five numbers and one deviation a row
