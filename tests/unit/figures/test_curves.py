"""Figures: the data they show, their marker_styles, and that they are the same bytes each time."""

import numpy as np
import pytest
from matplotlib.colors import to_hex

from tests import in_memory, synthetic
from tnfdt.evidence.read import load_results
from tnfdt.figures import curves as figures
from tnfdt.figures import write as figures_study
from tnfdt.figures.forest import forest
from tnfdt.figures.style import marker_styles, save
from tnfdt.files.atomic import sha256_file
from tnfdt.study.products import CLAIMS, PUBLISHED, figure_names
from tnfdt.study.study import load_study
from tnfdt.verdicts.claims import load_claims
from tnfdt.verdicts.judge import judge_claims
from tnfdt.verdicts.published import load_published

METHODS = ["vanilla", "ov", "fdt", "tn", "tn_fdt"]


@pytest.fixture(scope="module")
def published():
    return load_published(PUBLISHED)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    study = synthetic.study(
        grid={"table1": {"datasets": ["c10"], "models": ["resnet34"], "methods": METHODS}},
        training={"epochs": 3},
        attack={"epsilons": [0.1, 0.01], "steps": 10},
    )
    folder = synthetic.write(study, tmp_path_factory.mktemp("results"))
    return load_results(study, folder.parent, synthetic.machine())


@pytest.fixture
def nothing(results, tmp_path):
    return load_results(results.study, tmp_path, synthetic.machine())


def test_methods_differ_in_colour_and_in_marker():
    shown = marker_styles([*METHODS, "mine", "yours"])
    assert len({colour for colour, _ in shown.values()}) == 7
    assert len({marker for _, marker in shown.values()}) == 7


def test_accuracy_over_epsilon_shows_means_and_the_papers_values(results, published):
    (axis,) = figures.robust_accuracy(results, published).axes
    assert [tick.get_text() for tick in axis.get_xticklabels()] == ["clean", "10⁻²", "10⁻¹"]
    ours = {to_hex(bar.lines[0].get_color()): bar.lines[0].get_ydata() for bar in axis.containers}
    cells = [cell for cell in results.cells if cell.method == "tn"]
    expected = [
        100 * np.mean([results.accuracy(cell, epsilon) for cell in cells])
        for epsilon in (None, 0.01, 0.1)
    ]
    assert ours[marker_styles(METHODS)["tn"][0].lower()] == pytest.approx(expected)
    hollow = [line for line in axis.lines if line.get_markerfacecolor() == "white"]
    shown = sorted(float(line.get_ydata()[0]) for line in hollow)
    row = published[(published["dataset"] == "c10") & (published["model"] == "resnet34")]
    kept = row[row["epsilon"].isna() | row["epsilon"].isin([0.1, 0.01])]
    assert shown == sorted(kept["value"])


def test_iterates_show_the_mean_of_the_seeds(results):
    figure = figures.iterations(results)
    assert [axis.get_title() for axis in figure.axes] == ["ε=10⁻¹", "ε=10⁻²"]
    cells = [cell for cell in results.cells if cell.method == "vanilla"]
    mean = 100 * np.mean([results.curve(cell, 0.1) for cell in cells], axis=0)
    assert figure.axes[0].lines[0].get_ydata() == pytest.approx(mean)


def test_training_curves_show_every_epoch(results):
    (axis,) = figures.training_curves(results).axes
    assert len(axis.lines) == len(METHODS)
    assert list(axis.lines[0].get_xdata()) == [1, 2, 3]


def test_the_forest_has_a_row_for_every_comparison_with_results(results, published):
    verdicts = judge_claims(load_claims(CLAIMS), results, published)
    rows = [row for v in verdicts for row in v.evidence if row.status != "missing"]
    figure = forest(verdicts)
    labels = [tick.get_text() for axis in figure.axes for tick in axis.get_yticklabels()]
    assert len([label for label in labels if label]) == len(rows)
    texts = " ".join(text.get_text() for axis in figure.axes for text in axis.texts)
    for verdict in verdicts:
        if any(row in verdict.evidence for row in rows):
            assert verdict.verdict in texts


def test_the_forest_ends_a_contrast_of_several_rows_with_their_mean(published):
    study = load_study("paper")
    numbers = in_memory.published_numbers(published)
    made = in_memory.results(study, numbers, images=100, attacked=100)
    verdicts = judge_claims(load_claims(CLAIMS), made, published, study)
    labels = [t.get_text() for axis in forest(verdicts).axes for t in axis.get_yticklabels()]
    means = [one for v in verdicts for one in v.headlines if one.rows > 1]
    assert len([label for label in labels if label.startswith("mean")]) == len(means) > 10


def test_what_is_not_run_yet_says_so(nothing, published):
    verdicts = judge_claims(load_claims(CLAIMS), nothing, published)
    for figure in (
        figures.iterations(nothing),
        figures.training_curves(nothing),
        forest(verdicts),
    ):
        assert "yet" in figure.texts[0].get_text()
    figures.robust_accuracy(nothing, published)


def test_all_figures_of_a_study_are_written_even_of_nothing(nothing, published):
    written = figures_study.write(nothing, published, judge_claims(load_claims(CLAIMS), nothing))
    expected = {f"{name}.{kind}" for name in figure_names(nothing.study) for kind in ("png", "pdf")}
    assert {path.name for path in written} == expected
    assert all(path.stat().st_size > 1000 for path in written)


def test_the_same_results_give_the_same_bytes(results, tmp_path):
    first = save(figures.training_curves(results), tmp_path / "a")
    second = save(figures.training_curves(results), tmp_path / "b")
    assert [*map(sha256_file, first)] == [*map(sha256_file, second)]
    for word in (b"CreationDate", b"Matplotlib"):
        assert word not in first[1].read_bytes()
        assert word not in first[0].read_bytes()


def test_epochs_are_whole_numbers(results):
    figure = figures.training_curves(results)
    figure.draw_without_rendering()
    assert all(float(tick).is_integer() for tick in figure.axes[0].get_xticks())
