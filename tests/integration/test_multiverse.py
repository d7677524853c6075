"""A multiverse of the digits by the real Snakemake: what is shared is the same file, the claims
say what the readings do to them, and all of it comes out of the bundle again."""

import copy

import numpy as np
import pytest
from sklearn.datasets import load_digits

from tests.integration.conftest import SMALL
from tnfdt.files.atomic import read_json, sha256_file

MULTIVERSE = {"checkpoint": ["best"], "random_start": [True], "tn_backward": ["exact"]}


@pytest.fixture
def study(project):
    """The digits under the name of a dataset that the paper's claims are on."""
    digits = load_digits()
    images = np.repeat((digits.images * 15).astype(np.uint8)[..., None], 3, axis=3)
    train, test = slice(0, 300), slice(300, 350)
    np.savez(
        project.folder / "digits.npz",
        train_x=images[train], train_y=digits.target[train],
        test_x=images[test], test_y=digits.target[test],
    )  # fmt: skip
    raw = copy.deepcopy(SMALL) | {"multiverse": MULTIVERSE}
    raw["datasets"] = {"c10": {"path": "digits.npz", "augment": {"shift": 1}}}
    raw["grid"]["table1"] |= {"datasets": ["c10"], "methods": ["vanilla", "tn"]}
    raw["methods"] = {"vanilla": {}, "tn": {"tensor_norm": True}}
    project.write(raw)
    project.raw = raw
    return project


def test_all_leaves_the_readings_out_and_their_target_shares_trainings(study):
    assert study.planned()["train_cell"] == 2
    counts = study.planned("multiverse")
    assert counts["train_cell"] == 3  # two of the study's own, tn with the exact backward pass
    assert counts["pick_best"] == 2
    assert counts["attack_cell"] == 2 * (2 + 2 + 2 + 1)  # own, best, random start, exact
    done = study.run(*study.snakemake_command("--dry-run", "--quiet", "rules"))
    assert "  tn_backward: exact: 1 more trainings, 2 more attacks, 1 shared" in done.stderr


def test_a_multiverse_of_the_digits(study):
    study.raw["multiverse"] |= {"include": True}
    study.write(study.raw)
    study.snakemake(env={"MLFLOW_TRACKING_URI": "none"})
    shared_networks(study.results)
    for name in ("tables/multiverse.csv", "tables/multiverse.tex", "tables/distances.csv"):
        assert (study.results / name).stat().st_size > 0
    assert {path.name for path in (study.results / "figures").glob("readings_*.pdf")} == {
        "readings_tn-clean.pdf"
    }
    for name in ("tables/claims.md", "summary.md"):
        assert "of 3 other readings" in (study.results / name).read_text()
    assert not study.planned()
    rebuilt(study)
    verified(study)


def shared_networks(results):
    train, attack = results / "train/c10/wrn10_1", results / "attack/c10/wrn10_1"
    assert {path.name for path in train.iterdir()} == {
        "vanilla", "tn", "tn.tn_backward-exact", "vanilla.checkpoint-best", "tn.checkpoint-best",
    }  # fmt: skip
    own = read_json(train / "vanilla/seed0/record.json")
    started = read_json(attack / "vanilla.random_start-true/seed0/eps0.1.json")
    assert started["model_sha256"] == own["model_sha256"]
    assert started["interpretation"]["random_start"] is True
    best = read_json(train / "vanilla.checkpoint-best/seed0/record.json")
    kept = sha256_file(train / "vanilla/seed0/best.safetensors")
    assert best["model_sha256"] == own["best_sha256"] == kept
    assert best["metrics"]["accuracy"] == own["metrics"]["accuracy_best"]


def rebuilt(study):
    """Tables and curves of the readings out of the bundle alone, byte for byte."""
    command = ("--evidence", str(study.results / "evidence.zip"), "--out", "again")
    study.run("tnfdt", "tables", *command)
    again = study.folder / "again"
    found = [path.relative_to(again) for path in again.rglob("*") if path.is_file()]
    names = {path.name for path in found}
    assert {"multiverse.md", "distances.csv", "readings_tn-clean.png", "claims.md"} <= names
    for name in found:
        assert (again / name).read_bytes() == (study.results / name).read_bytes(), name


def verified(study):
    """A cell that has the training of another one, from the bundle: both come out the same."""
    cell = "c10/wrn10_1/vanilla.random_start-true/seed0"
    bundle = str(study.results / "evidence.zip")
    done = study.run("tnfdt", "verify", "--evidence", bundle, "--cell", cell)
    assert "the weights have the same bytes" in done.stdout
    assert done.stdout.rstrip().endswith("0 within rounding, 0 different")
