"""The claims under other readings, on made-up accuracies."""

from dataclasses import replace

import numpy as np
import pytest

from tests import in_memory
from tnfdt.figures.readings import specification_curve
from tnfdt.study.products import CLAIMS
from tnfdt.study.schema import ROOT, read_yaml
from tnfdt.study.study import study_from_dict
from tnfdt.tables.multiverse import multiverse_texts
from tnfdt.verdicts.claims import load_claims
from tnfdt.verdicts.distances import Distances
from tnfdt.verdicts.judge import judge_claims
from tnfdt.verdicts.multiverse import OWN, by_claim, by_contrast, outcomes, ranges, robustness

CLEAN = {"vanilla": 80.0, "ov": 78.0, "fdt": 80.0, "tn": 84.0, "tn_fdt": 84.0}
CLAIM = [claim for claim in load_claims(CLAIMS) if claim.id == "tn-clean"]


@pytest.fixture(scope="module")
def results():
    """TN helps, but with the exact backward pass it harms; a random start changes no training."""
    raw = read_yaml(ROOT / "config/studies/demo.yaml")
    raw["grid"]["table1"]["datasets"] = ["c10"]
    raw["datasets"] = {"c10": {}}
    raw["multiverse"] = {"tn_backward": ["exact"], "random_start": [True]}
    study = study_from_dict(raw, name="demo", where="demo")
    found = in_memory.results(
        study, lambda cell, epsilon: (CLEAN[cell.method], 0.3), images=400, attacked=50
    )
    for cell in study.variants:
        if cell.method == "tn.tn_backward-exact":
            base = cell._replace(method="vanilla")
            found.trained[cell] = found.trained[base]
            found.clean[cell] = np.concatenate([np.zeros(40), found.clean[base][40:]])
    return found


def judged(results):
    return judge_claims(CLAIM, results)


def test_shared_cells_are_the_same_arrays(results):
    exact, start = results.study.multiverse.readings
    cell = next(cell for cell in results.cells if cell.method == "vanilla")
    for reading in (exact, start):
        assert results.under(reading).clean[cell] is results.clean[cell]
    assert (cell, 0.1) not in results.under(start).attacked  # not attacked so yet


def test_a_reading_that_turns_the_sign_is_named(results):
    (group,) = by_contrast_on_c10(results)
    assert [one.title for one in group] == [OWN, "tn_backward: exact", "random_start: true"]
    assert [one.holds for one in group] == [True, False, True]
    found = robustness(group)
    assert found.text == (
        "same sign in 1 of 2 other readings (1 with the same numbers, as they share all cells); "
        "opposed under tn_backward: exact"
    )
    assert not found.robust
    both = robustness([*group, group[1]])
    assert "under tn_backward: exact and under tn_backward: exact" in both.text
    own, _, start = group
    assert repr(own.headline) == repr(start.headline)  # cells shared: the difference is exactly 0
    spans = ranges(group)
    assert list(spans) == ["tn_backward", "random_start"]
    assert spans["random_start"] == 0


def test_a_claim_that_no_reading_opposes_is_robust(results):
    (group,) = by_contrast_on_c10(results)
    borne_out = robustness([replace(one, holds=True) for one in group])
    assert borne_out.robust
    assert borne_out.text.endswith("robust to interpretation")
    shared = robustness([group[0], group[2]])  # the same cells: no evidence of robustness
    assert not shared.robust
    assert shared.text.endswith("none of them could oppose it")
    fails = [replace(one, holds=False) for one in group]
    assert robustness(fails).text.endswith("no reading bears the claim out")
    assert not robustness(group[:1]).robust  # nothing is known of other readings yet


def test_a_change_is_paired_by_seed_and_image(results):
    """TN's networks change, vanilla's do not: the change of Δ is that of TN alone."""
    (group,) = by_contrast_on_c10(results)
    own, exact, start = group
    assert own.change is None
    assert exact.change.estimate == pytest.approx(exact.headline.estimate - own.headline.estimate)
    assert exact.change.se > 0
    assert (start.change.estimate, start.change.se) == (0, 0)
    assert (exact.baseline.estimate, exact.baseline.se) == (0, 0)


def test_how_far_a_reading_moves_the_plain_network_is_said(results):
    """A tenth of the images that vanilla gets right are lost, whatever the seed."""
    raw = read_yaml(ROOT / "config/studies/demo.yaml")
    raw["grid"]["table1"]["datasets"] = ["c10"]
    raw |= {"datasets": {"c10": {}}, "multiverse": {"stem": ["imagenet"]}}
    study = study_from_dict(raw, name="demo", where="demo")
    moved = replace(results, study=study, clean=dict(results.clean), trained=dict(results.trained))
    for cell in study.variants:
        base = cell._replace(method=cell.method.removesuffix(".stem-imagenet"))
        moved.trained[cell] = results.trained[base]
        lost = 40 if base.method == "vanilla" else 0
        right = results.clean[base].copy()
        right[np.flatnonzero(right)[:lost]] = 0
        moved.clean[cell] = right
    (group,) = by_contrast_on_c10(moved)
    assert group[1].baseline.estimate == pytest.approx(-10)
    assert group[1].change.estimate == pytest.approx(10)
    text = by_claim(outcomes(moved, judged(moved), judged))["tn-clean"][0].text
    assert text.endswith("; stem: imagenet moves the baseline most, by -10.00 points")


def by_contrast_on_c10(results):
    return list(by_contrast(outcomes(results, judged(results), judged)).values())


def test_the_curve_shades_the_claimed_side_and_sorts_the_readings(results):
    found = outcomes(results, judged(results), judged)
    marks = [one.headline.estimate for one in found]
    for side, threshold in ((1, 0.0), (-1, -1.0)):
        claimed = [replace(one, side=side, threshold=threshold) for one in found]
        figure = specification_curve("tn-clean", claimed)
        curve, dots = figure.axes
        (low, high), bottom = sorted(curve.patches[0].get_extents().intervaly), curve.get_ylim()
        edge = curve.transData.transform((0, threshold))[1]
        ends = [curve.transData.transform((0, value))[1] for value in bottom]
        assert (low, high) == pytest.approx((edge, ends[1]) if side > 0 else (ends[0], edge))
        drawn = [line.get_ydata()[0] for line in curve.lines if line.get_marker() in ("o", "s")]
        assert drawn == sorted(marks)
        assert [label.get_text() for label in dots.get_yticklabels()] == [
            "tn_backward: exact",
            "random_start: true",
        ]
        legend = figure.legends[0]
        figure.draw_without_rendering()
        assert legend.get_window_extent().width < figure.bbox.width  # not cut off


def test_the_studys_own_verdict_is_the_same_without_the_others(results):
    alone = replace(results, clean={c: results.clean[c] for c in results.cells})
    assert repr(judged(alone)) == repr(judged(results))


def test_the_table_says_that_no_reading_is_chosen(results):
    found = outcomes(results, judged(results), judged)
    texts = multiverse_texts(found, Distances(why="of its size."))
    names = {f"multiverse.{kind}" for kind in ("csv", "md", "tex", "html")}
    assert {*texts} == names | {"distances.csv"}
    assert "No reading was chosen for its result" in texts["multiverse.md"]
    assert "Empty: of its size." in texts["multiverse.md"]
    assert texts["multiverse.csv"].count("\n") == 4
