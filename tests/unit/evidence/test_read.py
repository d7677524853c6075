"""Reading a study's records: what is there, what is missing, what must not be averaged."""

import json
import shutil
from dataclasses import asdict, replace

import numpy as np
import pytest

from tests import synthetic
from tnfdt.evidence.read import load_results
from tnfdt.study.paths import Cell
from tnfdt.study.schema import UserError

SMALL = {
    "grid": {"table1": {"datasets": ["c10"], "models": ["resnet34"], "methods": ["vanilla", "tn"]}},
    "seeds": [0, 1],
    "attack": {"epsilons": [0.1, 0.01]},
    "training": {"epochs": 3},
}
CELL = Cell("c10", "resnet34", "tn", 1)
NPZ = "eps0.1.npz"


@pytest.fixture
def study():
    return synthetic.study("small", **SMALL)


@pytest.fixture
def folder(study, tmp_path):
    return synthetic.write(study, tmp_path, synthetic.World(images=50))


def load(study, folder):
    return load_results(study, folder.parent, synthetic.machine())


def edit(path, **changes):
    record = json.loads(path.read_text())
    path.write_text(json.dumps(record | changes))


def attack(folder, name="eps0.1.json", cell=CELL):
    return folder / "attack" / cell.path / name


def training(folder, cell=CELL):
    return folder / "train" / cell.path / "record.json"


def clean_file(folder, cell=CELL):
    return folder / "train" / cell.path / "clean.npz"


def test_everything_is_read_as_it_was_written(study, folder):
    results = load(study, folder)
    correct = np.load(attack(folder, "eps0.1.npz"))["correct"]
    record = json.loads(training(folder).read_text())
    assert [*results.trained] == study.cells
    assert len(results.attacked) == len(study.cells) * 2
    assert results.outdated == ()
    assert results.scores(CELL, "robust", 0.1) == pytest.approx(correct.mean(axis=0))
    clean = np.load(clean_file(folder))["correct"]
    assert np.array_equal(results.scores(CELL, "clean", None), clean)
    assert results.accuracy(CELL) == record["metrics"]["accuracy"]
    assert results.accuracy(CELL, 0.1) == pytest.approx(correct.mean())
    assert results.curve(CELL, 0.1) == pytest.approx(correct.mean(axis=1))
    assert results.images("c10") == 50
    assert list(results.history(CELL)["epoch"]) == [1, 2, 3]


def test_sources_are_the_files_that_exist(study, folder):
    results = load(study, folder)
    assert results.sources(CELL) == [training(folder), clean_file(folder)]
    assert results.sources(CELL, 0.1) == [attack(folder), attack(folder, "eps0.1.npz")]


def test_an_empty_folder_is_a_study_not_run_yet(study, tmp_path):
    results = load(study, tmp_path / "small")
    assert not results.trained
    assert not results.attacked
    assert results.accuracy(CELL) is None
    assert results.accuracy(CELL, 0.1) is None
    assert results.scores(CELL, "clean", None) is None
    assert results.history(CELL) == {}
    assert results.sources(CELL, 0.1) == []
    assert results.images("c10") == 0


def test_an_attack_half_there_is_missing(study, folder):
    attack(folder, "eps0.1.npz").unlink()
    results = load(study, folder)
    assert results.scores(CELL, "robust", 0.1) is None
    assert results.scores(CELL, "robust", 0.01) is not None


def test_a_record_of_other_settings_is_outdated_not_averaged(study, folder):
    changed = replace(study, training=replace(study.training, lr=0.2))
    results = load(changed, folder)
    assert not results.trained
    assert not results.attacked
    assert training(folder) in results.outdated


def test_only_the_copy_of_a_dataset_that_is_prepared_now_counts(study, folder):
    manifest = folder / "data/c10/manifest.json"
    manifest.parent.mkdir(parents=True)
    manifest.write_text(json.dumps({"fingerprint": "new"}))
    edit(training(folder), dataset_fingerprint="new")
    results = load(study, folder)
    assert [*results.trained] == [CELL]
    assert len(results.outdated) == 3 + 3 * 2


def test_a_training_on_another_number_of_images_is_outdated(study, folder):
    manifest = folder / "data/c10/manifest.json"
    manifest.parent.mkdir(parents=True)
    limit = asdict(study.limit)
    for found, count in ((limit, 4), (limit | {"train": 50}, 0)):
        manifest.write_text(json.dumps({"fingerprint": "c10", "limit": found}))
        assert len(load(study, folder).trained) == count


def test_another_precision_is_the_machines_affair(study, folder):
    record = json.loads(training(folder).read_text())
    record["config"]["precision"] = "bf16"
    training(folder).write_text(json.dumps(record))
    assert CELL in load(study, folder).trained


def test_an_attack_on_earlier_weights_is_outdated(study, folder):
    edit(training(folder), model_sha256="f" * 64)
    results = load(study, folder)
    assert results.accuracy(CELL) is not None
    assert results.accuracy(CELL, 0.1) is None
    assert results.scores(CELL, "clean", None) is not None  # of the training, whatever attacks it
    assert set(results.outdated) == {attack(folder), attack(folder, "eps0.01.json")}


def test_an_attack_with_another_step_count_is_outdated(study, folder):
    changed = replace(study, attack=replace(study.attack, steps=20))
    assert not load(changed, folder).attacked


def test_an_attack_from_before_its_precision_was_recorded_is_one_in_fp32(study, folder):
    record = json.loads(attack(folder).read_text())
    del record["config"]["precision"]
    edit(attack(folder), config=record["config"])
    assert load(study, folder).outdated == ()
    changed = replace(study, attack=replace(study.attack, precision="tf32"))
    assert not load(changed, folder).attacked


def test_a_training_without_its_clean_results_misses_only_those(study, folder):
    clean_file(folder).unlink()
    results = load(study, folder)
    assert results.scores(CELL, "clean", None) is None
    assert results.scores(CELL, "robust", 0.1) is not None
    assert results.sources(CELL) == [training(folder)]


def rewrite(path, **arrays):
    np.savez(path, **arrays)


def change(path, **changes):
    rewrite(path, **dict(np.load(path)) | changes)


def fewer_images(folder):
    """Ten images fewer in every file of one cell, each in agreement with the others."""
    clean = np.load(clean_file(folder))["correct"]
    for name in ("eps0.1", "eps0.01"):
        correct = np.load(attack(folder, f"{name}.npz"))["correct"][:, :40]
        rewrite(attack(folder, f"{name}.npz"), correct=correct, indices=np.arange(40))
        record = json.loads(attack(folder, f"{name}.json").read_text())
        metrics = record["metrics"] | {
            "robust_accuracy": float(correct.mean()),
            "clean_accuracy": float(clean[:40].mean()),
        }
        edit(attack(folder, f"{name}.json"), images=40, metrics=metrics)


def fewer_clean(folder):
    """Test images lost from the clean results of one cell."""
    change(clean_file(folder), correct=np.load(clean_file(folder))["correct"][:60])


def too_few_clean(folder):
    """Clean results of 30 test images where the attacks name the 50th."""
    for cell in (
        Cell("c10", "resnet34", method, seed) for method in ("vanilla", "tn") for seed in (0, 1)
    ):
        correct = np.load(clean_file(folder, cell))["correct"][:30]
        change(clean_file(folder, cell), correct=correct)
        metric(folder, training(folder, cell), "accuracy", float(correct.mean()))


def other_images(folder):
    change(attack(folder, NPZ), indices=np.arange(1, 51))


def other_copy(folder):
    edit(training(folder), dataset_fingerprint="another")


def not_a_number(folder):
    text = training(folder).read_text()
    value = json.loads(text)["metrics"]["accuracy"]
    training(folder).write_text(text.replace(f'"accuracy": {value}', '"accuracy": NaN', 1))


def metric(folder, path, key, value):
    record = json.loads(path.read_text())
    edit(path, metrics=record["metrics"] | {key: value})


BAD = {
    "not JSON": (lambda f: training(f).write_text("{"), "record.json", "not a valid JSON"),
    "a list": (lambda f: training(f).write_text("[]"), "record.json", "not a record"),
    "empty": (lambda f: attack(f).write_text(""), "eps0.1.json", "not a valid JSON"),
    "binary": (lambda f: training(f).write_bytes(b"\xff\xfe\x00"), "record.json", "valid JSON"),
    "NaN": (not_a_number, "record.json", "NaN"),
    "infinite": (lambda f: training(f).write_text(training(f).read_text().replace("0.1", "1e999")),
                 "record.json", "finite"),
    "another study": (lambda f: edit(training(f), study="other"), "record.json", "'other'"),
    "another schema": (lambda f: edit(attack(f), schema=2), "eps0.1.json", "schema is 2"),
    "another stage": (lambda f: edit(attack(f), stage="train"), "eps0.1.json", "stage is 'train'"),
    "another cell": (lambda f: edit(attack(f), seed=0), "eps0.1.json", "seed is 0"),
    "another epsilon": (lambda f: edit(attack(f), epsilon=0.2), "eps0.1.json", "epsilon is 0.2"),
    "no metrics": (lambda f: edit(attack(f), metrics=None), "eps0.1.json", "metrics"),
    "a percentage": (lambda f: metric(f, training(f), "accuracy", 92.5), "record.json", "92.5"),
    "no accuracy": (lambda f: metric(f, training(f), "accuracy", None), "record.json", "None"),
    "text": (lambda f: metric(f, attack(f), "robust_accuracy", "high"), "eps0.1.json", "'high'"),
    "another mean": (lambda f: metric(f, attack(f), "robust_accuracy", 0.5), "eps0.1.json",
                     "not of one run"),
    "another clean": (lambda f: metric(f, attack(f), "clean_accuracy", 0.5), "clean.npz",
                      "not of one run"),
    "a short curve": (lambda f: metric(f, attack(f), "curve", [0.5]), "eps0.1.json", "40 steps"),
    "no array": (lambda f: attack(f, NPZ).write_bytes(b"PK"), NPZ, "cannot be read"),
    "empty array": (lambda f: attack(f, NPZ).write_bytes(b""), NPZ, "cannot be read"),
    "no correct": (lambda f: rewrite(attack(f, NPZ), wrong=np.ones(3)), NPZ, "correct"),
    "pickled": (lambda f: rewrite(attack(f, NPZ), correct=np.array([{}])), NPZ, "allow_pickle"),
    "flat": (lambda f: change(attack(f, NPZ), correct=np.ones(50, bool)), NPZ, "[50]"),
    "floats": (lambda f: change(attack(f, NPZ), correct=np.ones((40, 50))), NPZ, "float"),
    "other count": (lambda f: change(attack(f, NPZ), correct=np.ones((40, 49), bool)),
                    NPZ, "has 49 images"),
    "words": (lambda f: change(clean_file(f), correct=np.array(["y"] * 100)), "clean.npz", "bool"),
    "no indices": (lambda f: rewrite(attack(f, NPZ), correct=np.load(attack(f, NPZ))["correct"]),
                   NPZ, "indices"),
    "few indices": (lambda f: change(attack(f, NPZ), indices=np.arange(49)), NPZ, "has 49 images"),
    "fewer images": (fewer_images, NPZ, "has 40 images"),
    "fewer clean": (fewer_clean, "clean.npz", "has 60 images"),
    "too few clean": (too_few_clean, NPZ, "not of 30 images"),
    "other images": (other_images, NPZ, "different images"),
    "another accuracy": (lambda f: metric(f, training(f), "accuracy", 0.5), "clean.npz",
                         "not of one run"),
    "another copy": (other_copy, "record.json", "different copies of c10"),
    "two records": (lambda f: shutil.copy(attack(f), attack(f, "eps0.10.json")), "eps0.10.json",
                    "two records"),
    "a copied folder": (lambda f: shutil.copytree(training(f).parent, f / "train/c10/copy"),
                        "copy", "two records"),
}  # fmt: skip


@pytest.mark.parametrize(("damage", "name", "words"), BAD.values(), ids=BAD.keys())
def test_bad_input_is_named_in_one_line(study, folder, damage, name, words):
    load(study, folder)
    damage(folder)
    with pytest.raises(UserError) as error:
        load(study, folder)
    message = str(error.value)
    assert "\n" not in message
    assert name in message
    assert words in message


def test_records_of_cells_no_longer_in_the_study_are_left_alone(study, folder):
    fewer = synthetic.study("small", **SMALL | {"seeds": [0]})
    results = load(fewer, folder)
    assert {cell.seed for cell in results.trained} == {0}


def test_a_history_that_is_no_table_is_named(study, folder):
    path = training(folder).with_name("history.csv")
    path.write_text("")
    with pytest.raises(UserError, match=r"history\.csv"):
        load(study, folder).history(CELL)
