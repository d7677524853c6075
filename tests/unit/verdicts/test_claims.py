"""Verdicts from made-up studies whose truth is known, and the files they are read from."""

import copy
import json
import math
import re
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import yaml

from tests import synthetic
from tnfdt.evidence.contrasts import significance
from tnfdt.evidence.measured_shares import AUTOATTACK, Share
from tnfdt.evidence.statistics import (
    ALPHA,
    benjamini_hochberg,
    holm,
    row_test,
    smallest_detectable,
)
from tnfdt.study.attack_settings import AutoAttack
from tnfdt.study.paths import Cell
from tnfdt.study.schema import ROOT, UserError
from tnfdt.study.study import load_study
from tnfdt.tables.claims import claims_json, claims_markdown, claims_page, why_not_run
from tnfdt.verdicts.claims import load_claims
from tnfdt.verdicts.judge import VERDICTS, judge_claims
from tnfdt.verdicts.published import load_published

CLAIMS = ROOT / "config/claims.yaml"
PUBLISHED = ROOT / "config/published.csv"
METHODS = ("vanilla", "ov", "fdt", "tn", "tn_fdt")


# The stand-in for the paper's study: what is made with it is in the paper's regime.
DATASETS = ("c10", "c100", "fmnist", "svhn", "digits")
PAPER = synthetic.study(
    grid={
        "table1": {"datasets": [*DATASETS], "models": ["wrn10_1"], "methods": [*METHODS]},
        "table2": {
            "datasets": ["c100"],
            "models": ["wrn16_2", "resnet152", "wrn28_10"],
            "methods": ["vanilla", "tn_fdt"],
        },
    },
    datasets={name: {} for name in DATASETS},
)


class Study:
    """Results in memory: scores drawn around a given accuracy per (dataset, method, metric)."""

    def __init__(self, datasets=("c10",), seeds=3, images=2000, large=(), epsilons=(0.1,)):
        self.grid = {"table1": _cells(datasets, ["wrn10_1"], METHODS, seeds)}
        if large:
            self.grid["table2"] = _cells(["c100"], large, ("vanilla", "tn_fdt"), seeds)
        self.study, self.attacked = PAPER, {}
        self.epsilons = epsilons
        self.images = images
        self.levels = {}
        self.without = set()
        self.costs = {}

    def scores(self, cell, metric, epsilon):
        if cell in self.without:
            return None
        level = self.levels.get((cell.dataset, cell.method, metric), 0.5)
        # The same images are hard for every network; three seeds move the level by -0.3, 0 and
        # 0.3 points, in another order for each method.
        luck = 0.003 * ((cell.seed + METHODS.index(cell.method)) % 3 - 1)
        return (np.arange(self.images) + 0.5) / self.images < level + luck

    def record(self, cell):
        if cell in self.without:
            return None
        metrics = {"parameters": 1000, "peak_memory_bytes": 10**9, "images_per_second": 500.0}
        changed = self.costs.get(cell.method, {})
        return {"metrics": metrics | changed, "hardware": changed.get("hardware", {"cpu": "x"})}


def _cells(*axes):
    *names, seeds = axes
    return [Cell(*row) for row in product(*names, range(seeds))]


def _claims(tmp_path, *tests, costs=(), measures=(), **more):
    entry = {"says": "s.", "sentence": "S.", "section": "1"} | more
    entry |= {"contrasts": list(tests), "costs": list(costs), "measures": list(measures)}
    path = tmp_path / "claims.yaml"
    path.write_text(yaml.safe_dump({"families": {"f": {"title": "F", "claims": {"x": entry}}}}))
    return load_claims(path)


def _test(direction="greater", datasets=("c10",), **more):
    base = {"table": "table1", "metric": "clean", "a": "tn", "b": "vanilla"}
    return base | {"direction": direction, "datasets": list(datasets)} | more


def _judge(tmp_path, study, *tests, **more):
    return judge_claims(_claims(tmp_path, *tests, **more), study, paper=PAPER)[0]


@pytest.mark.parametrize(
    ("direction", "level", "margin", "expected"),
    [
        ("greater", 0.60, None, "reproduced"),
        ("greater", 0.50, None, "inconclusive"),
        ("greater", 0.40, None, "contradicted"),
        ("less", 0.60, None, "contradicted"),
        ("less", 0.40, None, "reproduced"),
        ("not_less", 0.50, 5.0, "reproduced"),
        ("not_less", 0.47, 3.0, "inconclusive"),
        ("not_less", 0.40, 5.0, "contradicted"),
        ("not_greater", 0.50, 5.0, "reproduced"),
        ("not_greater", 0.40, 1.0, "reproduced"),
        ("not_greater", 0.60, 5.0, "contradicted"),
    ],
)
def test_verdict_of_one_contrast(tmp_path, direction, level, margin, expected):
    study = Study()
    study.levels["c10", "tn", "clean"] = level
    extra = {} if margin is None else {"margin": margin}
    assert _judge(tmp_path, study, _test(direction, **extra)).verdict == expected


@pytest.mark.parametrize(
    ("levels", "expected"),
    [
        ((0.6, 0.6, 0.6), "reproduced"),
        ((0.6, 0.6, 0.503), "direction only"),
        ((0.503, 0.503, 0.503), "inconclusive"),
        ((0.6, 0.6, 0.4985), "inconclusive"),
        ((0.6, 0.6, 0.4), "contradicted"),
        ((0.6, 0.6, None), "not run"),
        ((0.6, 0.4, None), "contradicted"),
        ((None, None, None), "not run"),
    ],
)
def test_how_contrasts_combine(tmp_path, levels, expected):
    datasets = ("c10", "c100", "svhn")
    study = Study(datasets)
    for dataset, level in zip(datasets, levels, strict=True):
        study.levels[dataset, "tn", "clean"] = level
        if level is None:
            study.without |= {c for c in study.grid["table1"] if c[::2] == (dataset, "tn")}
    verdict = _judge(tmp_path, study, _test(datasets=datasets))
    assert verdict.verdict == expected
    assert len(verdict.missing) == 3 * levels.count(None)
    for row, level in zip(verdict.evidence, levels, strict=True):
        assert math.isnan(row.estimate) if level is None else row.on_claimed_side == (level > 0.5)


@pytest.mark.parametrize(
    ("level", "expected"),
    [(0.65, "reproduced"), (0.5, "direction only"), (0.3, "direction only"), (0.1, "contradicted")],
)
def test_more_than_doubled(tmp_path, level, expected):
    study = Study()
    study.levels = {("c10", "tn", "robust"): level, ("c10", "vanilla", "robust"): 0.25}
    test = _test(metric="robust", epsilon=0.1, ratio=2.0)
    verdict = _judge(tmp_path, study, test)
    assert verdict.verdict == expected
    raised, doubled = verdict.evidence
    assert (raised.hypothesis, doubled.hypothesis) == ("tn − vanilla > 0", "tn − 2 × vanilla > 0")
    assert doubled.estimate == pytest.approx(doubled.a_value - 2 * doubled.b_value)


def test_evidence_is_that_of_the_row_test(tmp_path):
    study = Study()
    study.levels["c10", "tn", "clean"] = 0.52
    (row,) = _judge(tmp_path, study, _test("not_less", margin=1.0)).evidence
    a, b = (
        np.stack([study.scores(Cell("c10", "wrn10_1", m, s), "clean", None) for s in range(3)])
        for m in ("tn", "vanilla")
    )
    expected = row_test(a, b)
    assert row.estimate == pytest.approx(100 * expected.estimate)
    low, high = expected.interval()
    assert (row.low, row.high) == pytest.approx((100 * low, 100 * high))
    assert row.p == row.p_holm == pytest.approx(expected.p(-0.01))
    assert row.detectable == pytest.approx(100 * smallest_detectable(expected.se, expected.df))
    assert row.detectable == row.detectable_holm  # one hypothesis
    assert (row.images, row.seeds_a, row.seeds_b, len(row.mcnemar_p)) == (2000, 3, 3, 3)


def test_one_seed_is_inconclusive_and_says_why(tmp_path):
    study = Study(seeds=1)
    study.levels["c10", "tn", "clean"] = 0.9
    verdict = _judge(tmp_path, study, _test())
    assert verdict.verdict == "inconclusive"
    assert "one seed" in verdict.reason
    assert math.isnan(verdict.evidence[0].p)


def test_a_seed_that_is_missing_is_named_and_the_others_count(tmp_path):
    study = Study()
    study.levels["c10", "tn", "clean"] = 0.6
    study.without = {Cell("c10", "wrn10_1", "tn", 2)}
    verdict = _judge(tmp_path, study, _test())
    assert verdict.verdict == "reproduced"
    assert verdict.missing == ("c10/wrn10_1/tn/seed2",)
    assert (verdict.evidence[0].seeds_a, verdict.evidence[0].seeds_b) == (2, 3)
    assert "some seeds without results" in verdict.reason


@pytest.mark.parametrize(
    ("test", "named"),
    [
        (_test(datasets=["svhn"]), "svhn/wrn10_1/tn (not in this study)"),
        (_test(a="mixup"), "c10/wrn10_1/mixup (not in this study)"),
        (_test(table="table2", a="tn_fdt"), "c10/*/tn_fdt (not in this study)"),
        (_test(metric="robust", epsilon=0.3), "ε = 0.3 (not in this study)"),
    ],
)
def test_what_the_study_does_not_plan_is_not_run(tmp_path, test, named):
    verdict = _judge(tmp_path, Study(), test)
    assert verdict.verdict == "not run"
    assert verdict.missing[0] == named


def test_holm_counts_each_planned_hypothesis_once_and_no_others(tmp_path):
    study = Study(("c10", "c100"))
    study.levels["c10", "tn", "clean"] = 0.51
    study.without |= {c for c in study.grid["table1"] if c.dataset == "c100"}
    tests = [_test(), _test(), _test(a="ov"), _test(datasets=["c100", "svhn"])]
    rows = _judge(tmp_path, study, *tests).evidence
    expected = holm([rows[0].p, rows[2].p, math.nan])  # c100 counts, svhn is not planned
    assert [rows[0].p_holm, rows[2].p_holm] == pytest.approx(expected[:2])
    assert rows[0].p_holm == rows[1].p_holm
    assert 0 < rows[0].p < rows[0].p_holm


def test_a_hypothesis_is_the_same_either_way_round(tmp_path):
    study = Study()
    study.levels["c10", "tn", "clean"] = 0.51
    greater = _test()
    less = _test("less", a="vanilla", b="tn")
    other = _test("not_less", margin=1.0)
    one, two, three = _judge(tmp_path, study, greater, less, other).evidence
    assert one.identity == two.identity != three.identity
    assert (one.p, one.p_holm) == pytest.approx((two.p, two.p_holm))
    expected = holm([one.p, three.p])
    assert (one.p_holm, three.p_holm) == pytest.approx(tuple(expected))


def test_smallest_effects_are_after_the_correction_that_applies(tmp_path):
    study = Study()
    study.levels["c10", "tn", "clean"] = 0.51
    row = _judge(tmp_path, study, _test(), _test(a="ov"), _test(a="fdt")).evidence[0]
    expected = [smallest_detectable(row.se, row.df, alpha) for alpha in (ALPHA, ALPHA / 3)]
    assert [row.detectable, row.detectable_holm] == pytest.approx(expected)


def test_supported_needs_no_correction_and_opposed_does(tmp_path):
    """The same distance on either side, with p between 0.05 / 20 and 0.05."""
    study = Study()
    study.without = {cell for cell in study.grid["table1"] if cell.method == "ov"}
    others = [_test("not_less", a="ov", margin=float(m)) for m in range(1, 20)]  # not run yet
    for level, expected in ((0.51, "supported"), (0.49, "undecided")):
        study.levels["c10", "tn", "clean"] = level
        row = _judge(tmp_path, study, _test(), *others).evidence[0]
        assert ALPHA / 20 < row.p < ALPHA < row.p_holm
        assert row.status == expected


def test_a_smaller_level_decides_less(tmp_path):
    study = Study()
    study.levels["c10", "tn", "clean"] = 0.51
    claims = _claims(tmp_path, _test())
    for alpha, expected in ((ALPHA, "reproduced"), (0.001, "inconclusive")):
        (verdict,) = judge_claims(claims, study, paper=PAPER, alpha=alpha)
        assert 0.001 < verdict.evidence[0].p < ALPHA
        assert verdict.verdict == expected


def test_questions_of_our_own_change_nothing_for_the_paper(tmp_path):
    study = Study()
    study.levels |= {("c10", "tn", "clean"): 0.51, ("c10", "fdt", "clean"): 0.51}
    (claim,) = _claims(tmp_path, _test(), _test(a="ov"))
    (asked,) = _claims(tmp_path, _test(), _test(a="fdt"), ours=True)
    alone = judge_claims([claim], study, paper=PAPER)
    papers, ours = judge_claims([claim, replace(asked, id="y")], study, paper=PAPER)
    assert claims_json([papers]) == claims_json(alone)
    assert ours.evidence[0].p_holm == papers.evidence[0].p_holm  # judged once
    asked_all = holm([papers.evidence[0].p, papers.evidence[1].p, ours.evidence[1].p])
    assert ours.evidence[1].p_holm == asked_all[2]  # corrected for the paper's, too
    value = claims_json([papers, ours])
    assert sum(value["counts"].values()) == sum(value["counts_ours"].values()) == 1
    first, second = claims_markdown([papers, ours]).split("## Questions of our own")
    assert first.count("\n### ") == second.count("\n### ") == 1


def test_a_question_of_our_own_is_asked_of_the_datasets_that_the_study_has(tmp_path):
    study = Study()
    study.levels["c10", "tn", "clean"] = 0.51
    test = _test(datasets=("c10", "c100"))
    assert _judge(tmp_path, study, test).verdict == "not run"
    asked = _judge(tmp_path, study, test, ours=True)
    assert asked.verdict == "reproduced"
    assert [row.dataset for row in asked.evidence] == ["c10"]
    elsewhere = _judge(tmp_path, study, _test(datasets=("c100",)), ours=True)
    assert elsewhere.verdict == "not run"


@pytest.mark.parametrize(
    ("asked", "expected", "missing"),
    [
        (AutoAttack(images=60, epsilons=(0.03137,)), "contradicted", ()),
        (AutoAttack(images=60, epsilons=(0.1,)), "not run", ("ε = 0.03137 (not in this study)",)),
        (None, "not run", ("ε = 0.03137 (not in this study)",)),
    ],
)
def test_autoattack_has_epsilons_of_its_own(tmp_path, asked, expected, missing):
    study = Study(epsilons=(0.1,))
    study.study = replace(PAPER, audit=replace(PAPER.audit, autoattack=asked))
    measure = {"table": "table1", "quantity": "autoattack_accuracy", "a": "tn"}
    claims = _claims(tmp_path, measures=[measure | {"epsilon": 0.03137, "at_most": 0.01}])
    left = {("c10", "wrn10_1", "tn"): Share(0.5, (0, 1, 2))}
    shares = {("autoattack_accuracy", 0.03137): left}
    (verdict,) = judge_claims(claims, study, paper=PAPER, shares=shares)
    assert (verdict.verdict, verdict.missing) == (expected, missing)


def test_the_load_of_a_machine_does_not_change_a_verdict_on_accuracy(tmp_path):
    study = Study()
    study.levels["c10", "tn", "clean"] = 0.51
    cost = {"table": "table1", "quantity": "seconds_per_image", "a": "tn", "b": "vanilla"}
    found = []
    for speed in (500.0, 100.0):
        study.costs["tn"] = {"images_per_second": speed}
        claims = _claims(tmp_path, _test(), costs=[cost | {"tolerance": 0.1}])
        found.append(judge_claims(claims, study, paper=PAPER)[0].evidence[0])
    assert found[0] == found[1]
    assert found[0].p_holm == pytest.approx(2 * found[0].p)  # the cost counts all the same


def test_a_share_that_is_counted(tmp_path):
    measure = {"table": "table1", "quantity": "enlarged_activations", "a": "tn", "at_most": 0}
    claims = _claims(tmp_path, measures=[measure])
    for share, expected in ((0.0, "reproduced"), (0.4, "contradicted")):
        shares = {("enlarged_activations", None): {("c10", "wrn10_1", "tn"): Share(share, (0,))}}
        (verdict,) = judge_claims(claims, Study(), paper=PAPER, shares=shares)
        assert verdict.verdict == expected
        assert verdict.evidence[0].estimate == share
        assert verdict.evidence[0].seeds_a == 1
        assert verdict.missing == ()
        assert "nan" not in claims_markdown([verdict])
    (verdict,) = judge_claims(claims, Study(), paper=PAPER)
    assert verdict.verdict == "not run"
    assert "enlarged activations not measured" in verdict.missing[0]


@pytest.mark.parametrize(
    ("audited", "asked", "missing"),
    [
        ((0, 1, 2), [0.1], ()),
        ((0, 2), [0.1], ("c10/wrn10_1/tn/seed1",)),
        ((), [0.1], tuple(f"c10/wrn10_1/tn/seed{seed}" for seed in range(3))),
    ],
)
def test_what_autoattack_leaves_is_of_the_audited_seeds_and_names_the_others(
    tmp_path, audited, asked, missing
):
    measure = {"table": "table1", "quantity": AUTOATTACK, "epsilon": 0.1, "a": "tn", "at_most": 0.5}
    study, places = Study(), {("c10", "wrn10_1", "tn"): Share(0.2, audited)}
    chosen = AutoAttack(images=None, epsilons=tuple(asked))
    study.study = replace(PAPER, audit=replace(PAPER.audit, autoattack=chosen))
    shares = {(AUTOATTACK, 0.1): places} if audited else {}
    claims = _claims(tmp_path, measures=[measure])
    (verdict,) = judge_claims(claims, study, paper=PAPER, shares=shares)
    (row,) = verdict.evidence
    assert (row.seeds_a, row.seeds_b) == (len(audited), 0)
    assert row.status == ("supported" if audited else "missing")
    assert row.missing == tuple(f"{name} (autoattack accuracy not measured)" for name in missing)
    assert verdict.missing == row.missing


def test_a_contrast_between_datasets(tmp_path):
    study = Study(("c10", "svhn"))
    study.levels["svhn", "vanilla", "robust"] = 0.6
    test = _test(
        datasets=["svhn"], against=["c10"], metric="robust", epsilon=0.1, a="vanilla", b="vanilla"
    )
    verdict = _judge(tmp_path, study, test)
    (row,) = verdict.evidence
    assert verdict.verdict == "reproduced"
    assert row.estimate == pytest.approx(10)
    assert row.hypothesis == "vanilla − vanilla on c10 > 0"
    assert row.mcnemar_p == ()
    with pytest.raises(UserError, match="a and b are both vanilla"):
        _claims(tmp_path, test | {"against": ["svhn"]})


@pytest.mark.parametrize(
    ("quantity", "tolerance", "tn", "expected"),
    [
        ("parameters", 0, {}, "reproduced"),
        ("parameters", 0, {"parameters": 1001}, "contradicted"),
        ("peak_memory_bytes", 0.02, {"peak_memory_bytes": 1.01e9}, "reproduced"),
        ("peak_memory_bytes", 0.02, {"peak_memory_bytes": 1.03e9}, "contradicted"),
        ("peak_memory_bytes", 0.02, {"peak_memory_bytes": None}, "not run"),
        ("peak_memory_bytes", 0.02, {"hardware": {"cpu": "x", "device": "cpu"}}, "not run"),
        ("seconds_per_image", 0.1, {"images_per_second": 480.0}, "reproduced"),
        ("seconds_per_image", 0.1, {"images_per_second": 300.0}, "contradicted"),
        ("seconds_per_image", 0.1, {"cpu_seconds_per_image": 0.003}, "contradicted"),
        ("seconds_per_image", 0.1, {"hardware": {"cpu": "y"}}, "not run"),
        ("parameters", 0, {"hardware": {"cpu": "y"}}, "reproduced"),
    ],
)
def test_costs(tmp_path, quantity, tolerance, tn, expected):
    study = Study()
    study.costs["tn"] = tn
    cost = {"table": "table1", "quantity": quantity, "a": "tn", "b": "vanilla"}
    verdict = _judge(tmp_path, study, costs=[cost | {"tolerance": tolerance}])
    assert verdict.verdict == expected
    assert bool(verdict.missing) == (expected == "not run")


def test_a_cost_that_no_record_has_is_not_called_unfinished(tmp_path):
    study = Study()
    cost = {"table": "table1", "quantity": "peak_memory_bytes", "a": "tn", "b": "vanilla"}
    study.costs["tn"] = {"hardware": {"cpu": "x", "device": "cpu"}}
    verdict = _judge(tmp_path, study, costs=[cost | {"tolerance": 0.02}])
    assert why_not_run(verdict).startswith("on what the records do not say")
    study.without = {cell for cell in study.grid["table1"] if cell.method == "tn"}
    verdict = _judge(tmp_path, study, costs=[cost | {"tolerance": 0.02}])
    assert why_not_run(verdict) == "without results yet"


def test_cost_by_hand(tmp_path, monkeypatch):
    study = Study()
    speeds = {("tn", 0): 400.0, ("tn", 1): 500.0, ("tn", 2): 625.0}
    record = study.record
    monkeypatch.setattr(study, "record", lambda cell: {
        **record(cell),
        "metrics": {"images_per_second": speeds.get((cell.method, cell.seed), 500.0)},
    })  # fmt: skip
    cost = {"table": "table1", "quantity": "seconds_per_image", "a": "tn", "b": "vanilla"}
    verdict = _judge(tmp_path, study, costs=[cost | {"tolerance": 0.1}])
    (row,) = verdict.evidence
    # Ratios 1.25, 1, 0.8: logs 0.22314, 0, -0.22314 with sd 0.22314; t(2) = 4.3027.
    half = 4.30265 * 0.223144 / math.sqrt(3)
    assert row.estimate == pytest.approx(1.0)
    assert (row.low, row.high) == pytest.approx((math.exp(-half), math.exp(half)), rel=1e-5)
    assert verdict.verdict == "inconclusive"
    assert "%" in verdict.reason


def test_significance_has_every_row_against_its_baseline():
    study = Study(("c10", "c100"), large=["wrn16_2"], epsilons=(0.1, 0.01))
    study.levels |= {("c10", "tn", "clean"): 0.6, ("c10", "fdt", "clean"): 0.505}
    study.without = {c for c in study.grid["table1"] if c.dataset == "c100" and c.method == "ov"}
    frame = significance(study)
    assert len(frame) == (2 * 4 + 1) * 3
    keys = ["table", "dataset", "model", "method", "metric", "epsilon"]
    assert not frame.duplicated(keys).any()
    row = frame.set_index(keys[:5]).loc[("table1", "c10", "wrn10_1", "tn", "clean")]
    assert row["delta"] == pytest.approx(row["value"] - row["baseline_value"])
    assert row["low"] < row["delta"] < row["high"]
    assert row["p_bh"] < 0.05
    missing = frame[(frame["dataset"] == "c100") & (frame["method"] == "ov")]
    assert missing[["p", "p_bh", "delta"]].isna().all(axis=None)
    assert (missing["seeds"] == 0).all()
    assert ((frame["p"] < 0.9 * frame["p_bh"]) & (frame["p"] > 0.001)).any()
    assert frame["p_bh"].to_numpy() == pytest.approx(
        benjamini_hochberg(frame["p"].to_numpy()), nan_ok=True
    )


def test_significance_without_any_result():
    study = Study()
    study.without = set(study.grid["table1"])
    frame = significance(study)
    assert len(frame) == 8
    assert frame["p_bh"].isna().all()


def _full_study():
    study = Study(("c10", "c100", "fmnist", "svhn"), large=["wrn16_2"])
    for dataset in ("c10", "c100", "fmnist", "svhn"):
        study.levels[dataset, "tn", "clean"] = 0.6
        study.levels[dataset, "ov", "clean"] = 0.4
        study.levels[dataset, "fdt", "robust"] = 0.45 if dataset == "svhn" else 0.6
        study.levels[dataset, "tn_fdt", "robust"] = 0.503 if dataset == "svhn" else 0.7
    return study


def test_the_papers_claims_on_a_made_up_study():
    verdicts = judge_claims(load_claims(CLAIMS), _full_study(), load_published(PUBLISHED), PAPER)
    found = {verdict.claim.id: verdict.verdict for verdict in verdicts}
    assert set(found.values()) <= set(VERDICTS)
    for id_ in ("tn-clean", "fdt-robust", "fdt-robust-svhn", "tn-fdt-robust", "ov-less-accurate"):
        assert found[id_] == "reproduced"
    assert found["tn-parameters"] == found["tn-memory"] == found["tn-time"] == "reproduced"
    assert found["ov-robust"] == "inconclusive"
    assert found["tn-smaller-activations"] == "not run"


def test_a_study_without_the_papers_datasets_runs_only_the_costs():
    verdicts = judge_claims(load_claims(CLAIMS), Study(("digits",)), paper=PAPER)
    assert {v.claim.family for v in verdicts if v.verdict != "not run"} == {"cost"}
    assert all(verdict.missing for verdict in verdicts if verdict.verdict == "not run")


def test_the_papers_difference_stands_beside_ours():
    claims = load_claims(CLAIMS)
    found = judge_claims(claims, _full_study(), load_published(PUBLISHED), PAPER)
    verdicts = {v.claim.id: v for v in found}
    c10 = verdicts["tn-clean"].evidence[0]
    assert (c10.published, c10.published_model) == (pytest.approx(93.69 - 92.52), "resnet34")
    # Table 2 has two networks, neither of which is this study's: no number is this row's.
    assert math.isnan(verdicts["large-clean"].evidence[0].published)


def test_the_papers_difference_is_of_the_same_network_and_ratio():
    study = Study(("c100",), large=["resnet152", "wrn28_10"])
    claims = [claim for claim in load_claims(CLAIMS) if claim.id == "large-robust-doubled"]
    (verdict,) = judge_claims(claims, study, load_published(PUBLISHED), PAPER)
    found = {(row.model, row.role): row.published for row in verdict.evidence}
    assert found["resnet152", "claim"] == pytest.approx(10.28 - 3.13)
    assert found["resnet152", "size"] == pytest.approx(10.28 - 2 * 3.13)
    assert found["wrn28_10", "size"] == pytest.approx(13.59 - 2 * 4.57)


def test_json_is_plain_and_complete():
    study = _full_study()
    study.without = {c for c in study.grid["table1"] if c.method == "tn" and c.dataset == "c10"}
    verdicts = judge_claims(load_claims(CLAIMS), study)
    text = json.dumps(claims_json(verdicts), allow_nan=False)
    value = json.loads(text)
    assert value["schema"] == 2
    total = sum(value["counts"].values()) + sum(value["counts_ours"].values())
    assert total == len(value["claims"]) == len(verdicts)
    first = value["claims"][0]
    assert (first["id"], first["verdict"]) == ("tn-clean", "not run")
    assert first["missing"] == [f"c10/wrn10_1/tn/seed{seed}" for seed in range(3)]
    assert first["evidence"][0]["estimate"] is None
    assert first["evidence"][1]["status"] == "supported"


def test_markdown_puts_the_verdict_first_and_every_table_is_square():
    study = _full_study()
    study.without = {c for c in study.grid["table1"] if c.method == "fdt"}
    verdicts = judge_claims(load_claims(CLAIMS), study, load_published(PUBLISHED), PAPER)
    text = claims_markdown(verdicts)
    assert "### reproduced: TN raises clean accuracy on C10, C100, F-MNIST, SVHN." in text
    assert "> “In this work, we introduce pixel wise tensor normalization" in text
    assert "and 6 more." in text  # 12 of FDT's cells are missing
    for block in re.findall(r"(?:^\|.*\n)+", text, flags=re.MULTILINE):
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}) == 1
    assert "nan" not in text
    assert text.count("<details>") == text.count("</details>") > 5
    # What was not run at all is counted in one line and has no card.
    assert "FDT keeps clean accuracy" not in text
    assert re.search(r"^- \*\*\d+ not run\*\*: .*without results yet", text, re.MULTILINE)


def test_the_page_of_a_study_does_not_speak_of_datasets_it_does_not_have():
    study = Study(("digits",))
    verdicts = judge_claims(load_claims(CLAIMS), study, load_published(PUBLISHED), PAPER)
    for text in (claims_markdown(verdicts), claims_page(verdicts, "mine", "")):
        assert not re.search(r"C10|C100|F-MNIST|SVHN|svhn|fmnist", text)
        assert "that this study does not have" in text
    assert "### reproduced: TN adds no parameter on Digits." in claims_markdown(verdicts)


def test_a_study_with_some_of_a_claims_datasets_shows_those():
    verdicts = judge_claims(load_claims(CLAIMS), Study(("c10",)), load_published(PUBLISHED), PAPER)
    text = claims_markdown(verdicts)
    assert "### not run: TN raises clean accuracy on C10 (1 of its 4 datasets)." in text
    assert "with results on a part of what is needed" in text
    assert not re.search(r"C100|F-MNIST|SVHN \||svhn|fmnist", text)


def test_every_claim_of_the_file_is_about_methods_and_datasets_of_the_paper():
    claims = [claim for claim in load_claims(CLAIMS) if not claim.ours]
    published = load_published(PUBLISHED)
    assert len(claims) >= 15
    for test in (test for claim in claims for test in claim.contrasts):
        table = published[published["table"] == test.table]
        assert {test.a, test.b} <= set(table["method"])
        assert set(test.datasets) <= set(table["dataset"])


def test_every_question_of_ours_is_about_the_studies_of_controls():
    claims = [claim for claim in load_claims(CLAIMS) if claim.ours]
    assert len(claims) >= 6
    for name in ("controls", "mini_controls"):
        study = load_study(name)
        cells = {(cell.dataset, cell.method) for cell in study.grid["controls"]}
        for test in (test for claim in claims for test in claim.contrasts):
            here = {*test.datasets} & {*study.datasets}
            assert name == "mini_controls" or here == {*test.datasets}
            assert here
            assert {(dataset, m) for dataset in here for m in (test.a, test.b)} <= cells
            assert test.epsilon in study.attack.epsilons
        shares = (t for claim in claims for t in claim.comparisons if t.unit == "share")
        for test in shares:
            assert test.epsilon in study.audit.autoattack.epsilons


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"metric": "accuracy"}, "metric.*clean.*robust"),
        ({"direction": "more"}, "direction.*not_greater"),
        ({"margn": 1}, "unknown key margn; allowed: a, against, b, datasets"),
        ({"epsilon": 0.1}, "epsilon is only for metric robust"),
        ({"metric": "robust"}, "metric robust needs the key epsilon"),
        ({"metric": "robust", "epsilon": -1}, "epsilon"),
        ({"margin": 1.0}, "margin is only for direction not_less or not_greater"),
        ({"direction": "not_less"}, "direction not_less needs the key margin"),
        ({"direction": "less", "ratio": 2}, "ratio is only for direction greater"),
        ({"ratio": 1e308}, "ratio: 1e.308 is greater than the maximum of 1000"),
        ({"datasets": []}, "datasets"),
        ({"table": "table-3"}, "table.*table1"),
    ],
)
def test_a_claims_file_that_is_wrong_is_refused_in_one_line(tmp_path, change, message):
    with pytest.raises(UserError, match=message) as error:
        _claims(tmp_path, _test() | change)
    assert str(tmp_path / "claims.yaml") in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("quantity: autoattack_accuracy, epsilon: 0.03137", "quantity: autoattack_accuracy",
         "measures.0: quantity autoattack_accuracy needs the key epsilon"),
        ("quantity: enlarged_activations", "epsilon: 0.1, quantity: enlarged_activations",
         "measures.0: epsilon is only for quantity autoattack_accuracy"),
        ("says: TN raises clean accuracy.", 'says: "TN\\nraises"', "says: 'TN.*' is not allowed"),
    ],
)  # fmt: skip
def test_a_measure_or_a_text_that_is_wrong_is_refused_in_one_line(tmp_path, old, new, message):
    text = CLAIMS.read_text()
    assert old in text
    (tmp_path / "claims.yaml").write_text(text.replace(old, new, 1))
    with pytest.raises(UserError, match=message):
        load_claims(tmp_path / "claims.yaml")


def test_a_claim_needs_a_test_and_a_unique_id(tmp_path):
    with pytest.raises(UserError, match="nothing to test"):
        _claims(tmp_path)
    raw = yaml.safe_load(CLAIMS.read_text())
    raw["families"]["again"] = copy.deepcopy(raw["families"]["overlay"])
    path = tmp_path / "twice.yaml"
    path.write_text(yaml.safe_dump(raw))
    with pytest.raises(UserError, match=r"claim ov-[a-z-]+ stands in 2 families"):
        load_claims(path)
    with pytest.raises(UserError, match="does not exist"):
        load_claims(tmp_path / "none.yaml")


def test_published_holds_both_tables():
    frame = load_published(PUBLISHED)
    assert frame.groupby("table").size().to_dict() == {"table1": 100, "table2": 20}
    assert frame.groupby("metric").size().to_dict() == {"clean": 24, "robust": 96}
    assert frame["sd"].notna().sum() == 20
    assert frame["sd"].max() == 0.61
    assert frame["value"].min() == 3.07
    assert frame["value"].max() == 96.46
    assert set(frame["epsilon"].dropna()) == {0.1, 0.01, 0.001, 0.0001}


@pytest.mark.parametrize(
    ("row", "value"),
    [
        ("table1 c10 resnet34 vanilla clean", 92.52),
        ("table1 c100 resnet34 ov robust 0.01", 36.17),
        ("table1 fmnist resnet34 tn_fdt robust 0.1", 39.03),
        ("table1 svhn resnet34 tn robust 0.0001", 95.21),
        ("table2 c100 resnet152 tn_fdt robust 0.01", 50.09),
        ("table2 c100 wrn28_10 vanilla robust 0.1", 4.57),
    ],
)
def test_published_spot_values(row, value):
    frame = load_published(PUBLISHED)
    names = dict(zip(("table", "dataset", "model", "method", "metric"), row.split(), strict=False))
    for column, name in names.items():
        frame = frame[frame[column] == name]
    epsilon = row.split()[5:]
    if epsilon:
        frame = frame[frame["epsilon"] == float(epsilon[0])]
    assert frame["value"].tolist() == [value]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("92.52", "abc", "line 2: value is not a number"),
        ("92.52", "192.52", "line 2: value is not a percentage"),
        ("92.52", "", "line 2: value is not a percentage"),
        ("vanilla,clean", "vanilla,cleen", "line 2: metric is not clean or robust"),
        ("vanilla,clean,", "vanilla,clean,0.1", "line 2: robust needs an epsilon, clean has none"),
        ("c10,resnet34,ov,clean", "c10,resnet34,vanilla,clean", "line 7: is duplicated"),
        ("table1,c10", "table1,", "line 2: a name is missing"),
        ("0.25", "-0.25", "line 2: sd is negative"),
        ("table,dataset", "dataset,table", "the columns must be table,dataset"),
    ],
)
def test_published_numbers_that_are_wrong_are_refused_in_one_line(tmp_path, old, new, message):
    path = tmp_path / "published.csv"
    path.write_text(PUBLISHED.read_text().replace(old, new, 1))
    with pytest.raises(UserError, match=f"published.csv: {message}") as error:
        load_published(path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("content", [None, b"", b"\xff\xfe\x00", b"a,b\n1,2,3,4\n1"])
def test_published_files_that_are_no_csv(tmp_path, content):
    path = tmp_path / "published.csv"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match=re.escape(str(path))):
        load_published(path)
