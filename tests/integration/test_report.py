"""Snakemake's report of a study, made by a run and read in the real Chromium, offline."""

import base64
import html
import json
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from tests import synthetic
from tests.integration.conftest import Project
from tnfdt.data.prepare import prepare
from tnfdt.files.atomic import write_json
from tnfdt.models import create_model
from tnfdt.study import products
from tnfdt.study.study import load_study

STUDY = {
    "grid": {
        "table1": {
            "datasets": ["digits"],
            "models": ["wrn10_1"],
            "methods": [*synthetic.METHODS],
        },
        "table2": {"datasets": ["c100"], "models": ["wrn28_10"], "methods": ["vanilla", "tn_fdt"]},
    },
    "seeds": [0, 1],
    "methods": synthetic.METHODS,
    "datasets": {"digits": {}, "c100": {}},
    "limit": {"train": 200, "test": 60},
    "training": {"epochs": 3},
    "attack": {"epsilons": [0.1, 0.01], "steps": 10, "limit": 60},
    "audit": {"include": True, "seeds": [0]},
}
WALK = Path(__file__).with_name("report_walk.js")
NARROW = """
setTimeout(() => {
  const page = document.querySelector(".prose");
  page.querySelector("table").style.minWidth = "2000px";
  const { left, right } = page.getBoundingClientRect();
  const note = document.createElement("pre");
  note.id = "walk";
  note.textContent = JSON.stringify({ left, right, screen: window.innerWidth });
  document.body.appendChild(note);
}, 2000);
"""
TARGETS = ("tables", "make_audit_tables", "pack")
RULES = ("--allowed-rules", "count_activations", "make_tables", *TARGETS)


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """Made-up records, real images and real (untrained) weights: all that stage 4 reads."""
    project = Project(tmp_path_factory.mktemp("report"), "pages")
    project.write(STUDY)
    study = load_study(str(project.study))
    prepare(
        "digits",
        project.results / "data/digits",
        data_dir=project.folder,
        path=None,
        limit=study.limit,
    )
    write_json(project.results / "data/c100/manifest.json", {"fingerprint": "c100"})
    cell = products.watched_cell(study)
    for other in study.cells:
        weights = project.results / "train" / other.path / "model.safetensors"
        weights.parent.mkdir(parents=True)
        weights.touch()  # stage 4 reads those of one cell; the others have to be there
    weights = project.results / "train" / cell.path / "model.safetensors"
    torch.manual_seed(0)
    save_file(create_model(cell.model, 10, tensor_norm="paper").state_dict(), weights)
    synthetic.write(study, project.folder / "results", synthetic.World(images=60))
    synthetic.write_audits(study, project.results)
    for other in study.audited():  # declared by a rule, and packed as they are
        path = project.results / "audit" / other.path / "audit.npz"
        np.savez(path, paper=np.zeros((1, 50), bool))
    return project


@pytest.fixture(scope="module")
def report(project):
    """The report that a run leaves behind without being asked for it."""
    project.snakemake(*TARGETS, *RULES)
    return project.results / "report.html"


def test_a_run_ends_with_a_report_of_one_file(report):
    text = report.read_text()
    assert "Study pages" in text
    # Scripts, styles and pictures are inside; nothing is fetched when the page is opened.
    assert not re.findall(r"<(?:script|link|img)[^>]+(?:src|href)=[\"']?(?:https?:)?//", text)


def test_a_second_run_has_nothing_to_do(project, report):
    assert project.planned(*TARGETS, *RULES) == {}


def test_a_dry_run_makes_no_report(project, report, tmp_path):
    other = Project(tmp_path, "other")
    other.snakemake("--dry-run", "--quiet", "all")
    assert not other.results.exists()


@pytest.fixture(scope="module")
def walk(report, tmp_path_factory):
    """What a reader sees who clicks on everything."""
    page = tmp_path_factory.mktemp("walk") / "report.html"
    return opened(report, WALK.read_text(), page, width=1600)


def opened(report, script, page, *, width):
    """What a script leaves in the element `walk` of the report, on a screen so wide."""
    before, _, after = report.read_text().rpartition("</body>")
    page.write_text(f"{before}<script>{script}</script></body>{after}")
    offline = "--host-resolver-rules=MAP * ~NOTFOUND"
    size = f"--window-size={width},1200"
    options = ["--headless", "--no-sandbox", "--disable-gpu", size, offline]
    command = ["chromium", *options, "--virtual-time-budget=120000", "--dump-dom", page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    found = re.search(r'<pre id="walk">(.*?)</pre>', done.stdout, re.DOTALL)
    assert found, done.stderr[-1000:]
    return json.loads(html.unescape(found[1]))


@pytest.mark.needs("chromium")
def test_the_front_page_leads_with_table_and_figure(walk):
    front = walk["front"]
    assert front.index("Baseline") < front.index("Verdicts") < front.index("The menu has")
    assert walk["picture"] > 300  # pixels: it was found and drawn
    assert walk["top"] >= 0  # its top is not cut off


@pytest.mark.needs("chromium")
def test_a_narrow_screen_cuts_nothing_off(report, tmp_path):
    """A table that is too wide is scrolled by itself: the page is as wide as the screen."""
    seen = opened(report, NARROW, tmp_path / "report.html", width=420)
    assert seen["left"] >= 0
    assert seen["right"] <= seen["screen"]


@pytest.mark.needs("chromium")
def test_the_front_page_has_every_verdict_reached_and_one_line_for_the_rest(walk, project):
    found = json.loads((project.results / "tables/claims.json").read_text())["claims"]
    claims = [claim for claim in found if not claim["ours"]]
    reached = [claim for claim in claims if claim["verdict"] != "not run"]
    assert reached
    for claim in reached:
        assert claim["says"].removesuffix(".") in walk["front"]
        assert claim["verdict"] in walk["front"]
    assert f"{len(claims) - len(reached)} not run" in walk["front"]
    foreign = [c for c in claims if all(row["status"] == "missing" for row in c["evidence"])]
    assert foreign
    assert not [claim["id"] for claim in foreign if claim["says"] in walk["front"]]


@pytest.mark.needs("chromium")
def test_the_front_page_speaks_of_no_dataset_that_the_study_lacks(walk):
    assert not re.search("C10\\b|F-MNIST|SVHN", walk["front"])


@pytest.mark.needs("chromium")
def test_every_table_and_figure_opens(walk, project):
    study = load_study(str(project.study))
    pages = [*products.table_pages(study), "audit", "summary"]
    pictures = [*products.figure_names(study), "audit_bars"]
    kinds = {products.TITLES[name]: "IFRAME" for name in pages}
    kinds |= {products.TITLES[name]: "IMG" for name in pictures}
    assert {label: shown["kind"] for label, shown in walk["opened"].items()} == kinds
    assert all(shown["width"] > 300 and shown["top"] >= 0 for shown in walk["opened"].values())


@pytest.mark.needs("chromium")
def test_captions_state_runs_images_and_tests(walk):
    caption = walk["captions"]["Table 1"]
    assert "2 runs per row" in caption
    assert "60 attacked test images" in caption
    assert "two-sided t-test" in caption


def test_the_tables_in_the_report_are_the_tables(report, project):
    encoded = re.findall(
        r"data:text/html;charset=[\w-]+;(?:filename=[^;]+;)?base64,([\w+/=]+)", report.read_text()
    )
    pages = {base64.b64decode(page) for page in encoded}
    assert (project.results / "tables/table1.html").read_bytes() in pages
