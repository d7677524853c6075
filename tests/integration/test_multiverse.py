"""A multiverse of the digits by the real Snakemake: what is shared is the same file."""

import copy

import pytest

from tests.integration.conftest import SMALL
from tnfdt.files.atomic import read_json, sha256_file

MULTIVERSE = {"checkpoint": ["best"], "random_start": [True], "tn_backward": ["exact"]}


@pytest.fixture
def study(project):
    project.write(copy.deepcopy(SMALL) | {"multiverse": MULTIVERSE})
    return project


def test_all_leaves_the_readings_out_and_their_target_shares_trainings(study):
    assert study.planned()["train_cell"] == 2
    counts = study.planned("multiverse")
    assert counts["train_cell"] == 3  # two of the study's own, tn_fdt with the exact backward pass
    assert counts["pick_best"] == 2
    assert counts["attack_cell"] == 2 * (2 + 2 + 2 + 1)  # own, best, random start, exact


def test_a_multiverse_of_the_digits(study):
    study.snakemake("multiverse", env={"MLFLOW_TRACKING_URI": "none"})
    train, attack = study.results / "train/digits/wrn10_1", study.results / "attack/digits/wrn10_1"
    assert {path.name for path in train.iterdir()} == {
        "vanilla", "tn_fdt", "tn_fdt.tn_backward-exact",
        "vanilla.checkpoint-best", "tn_fdt.checkpoint-best",
    }  # fmt: skip
    own = read_json(train / "vanilla/seed0/record.json")
    started = read_json(attack / "vanilla.random_start-true/seed0/eps0.1.json")
    assert started["model_sha256"] == own["model_sha256"]
    assert started["interpretation"]["random_start"] is True
    best = read_json(train / "vanilla.checkpoint-best/seed0/record.json")
    kept = sha256_file(train / "vanilla/seed0/best.safetensors")
    assert best["model_sha256"] == own["best_sha256"] == kept
    assert best["metrics"]["accuracy"] == own["metrics"]["accuracy_best"]
    for name in ("tables/multiverse.csv", "tables/multiverse.tex", "figures/readings.pdf"):
        assert (study.results / name).stat().st_size > 0
    assert "train_cell" not in study.planned("multiverse")
