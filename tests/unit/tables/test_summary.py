"""The reviewer's page says what the records say, and what is missing."""

import pytest

from tests import synthetic
from tnfdt.evidence.read import load_results
from tnfdt.study.products import CLAIMS, PUBLISHED
from tnfdt.study.study import load_study
from tnfdt.tables.cards import says
from tnfdt.tables.summary import summary_page, summary_text
from tnfdt.verdicts.claims import load_claims
from tnfdt.verdicts.judge import judge_claims
from tnfdt.verdicts.published import load_published

SMALL = {
    "grid": {"table1": {"datasets": ["c10"], "models": ["wrn10_1"], "methods": ["vanilla", "tn"]}},
    "seeds": [0, 1],
    "training": {"epochs": 3},
    "limit": {"train": 5000},
    "audit": {"include": True, "seeds": [0]},
    "interpretation": {"tn_backward": "exact"},
}


def summary(study, folder):
    results = load_results(study, folder, synthetic.machine())
    published = load_published(PUBLISHED)
    verdicts = judge_claims(load_claims(CLAIMS), results, published)
    return summary_text(results, load_study("paper"), verdicts, {}), verdicts


@pytest.fixture
def page(tmp_path):
    study = synthetic.study(**SMALL)
    left_out = study.cells[-1]
    folder = synthetic.write(study, tmp_path, skip=(left_out,))
    synthetic.write_audits(study, folder)
    return summary(study, tmp_path)


def test_it_has_every_claim_with_results_and_the_others_in_a_line(page):
    text, verdicts = page
    for verdict in verdicts:
        has_results = any(row.status != "missing" for row in verdict.evidence)
        assert (f"| **{verdict.verdict}** | {says(verdict)} |" in text) == has_results
    assert "7 on datasets, networks, methods or an ε that this study does not have" in text


def test_differences_stand_beside_the_papers(page):
    text, verdicts = page
    head = next(v.headlines[0] for v in verdicts if v.claim.id == "tn-clean")
    assert f" | {head.estimate:+.2f} | {head.published:+.2f} |" in text


def test_a_claim_of_the_paper_that_was_not_run_is_named_with_the_reason(page):
    text, _ = page
    rest = text.partition("## What could not be checked")[2]
    (foreign,) = [line for line in rest.splitlines() if "this study does not have: " in line]
    assert "FDT raises clean accuracy." in foreign
    assert "TN raises clean accuracy." not in foreign  # only a seed of it is missing
    assert "label smoothing" not in rest  # a question of our own


@pytest.mark.parametrize(
    "line",
    [
        "3 of 4 trainings, 12 of 16 attacks and 2 of 2 audits are in this study, with seeds 0, 1:",
        "- table1: WideResNet-10-1 (the paper: ResNet-34)",
        "- 5,000 training images (the paper: all)",
        "- epochs 3 (the paper: 150)",
        "| exact (not the default) |",
        "- C10: ",
        "| train | 3 | 0.08 | made up |",
        "- Not trained: c10/wrn10_1/tn/seed1.",
        "- Not attacked: 4 pairs of a cell and an ε.",
        "its results are then *replicated*: another team",
    ],
)
def test_it_says_what_was_done_what_differs_and_what_is_missing(page, line):
    assert line in page[0]


def test_a_study_of_nothing_has_a_page(tmp_path):
    text, _ = summary(synthetic.study(), tmp_path)
    assert "0 of 42 trainings, 0 of 168 attacks are in this study" in text


def test_the_page_of_the_report_runs_nothing(page):
    html = summary_page(page[0] + "\n<script>alert(1)</script>\n")
    assert "<h2>Scope</h2>" in html
    assert "<td><strong>not run</strong></td>" in html
    assert "<script>" not in html
