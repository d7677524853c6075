"""Whatever stands in a file, a reader gives a value or one line: never another exception.

Random bytes rarely get past the first check. So valid files are mutated too: a key dropped, a
value replaced by one of another type, by a huge number, by nested garbage, by another value.
"""

import copy
import io
import json
import re
import warnings

import numpy as np
import pytest
import torch
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests import synthetic
from tnfdt import verify
from tnfdt.attack.batches import Partial
from tnfdt.cli import arguments
from tnfdt.data.npz import read_npz as read_images
from tnfdt.data.prepare import prepare
from tnfdt.data.prepared import load
from tnfdt.evidence import audits, ledger
from tnfdt.evidence.read import load_results
from tnfdt.files.atomic import write_npz
from tnfdt.study.machine import load_machine, machine_from_dict
from tnfdt.study.paths import Cell, StudyPaths
from tnfdt.study.schema import ROOT, UserError, validated
from tnfdt.study.study import load_study, study_from_dict
from tnfdt.tracking.view import read_cell
from tnfdt.train import checkpoint
from tnfdt.train.recipe import HISTORY
from tnfdt.verdicts.claims import load_claims
from tnfdt.verdicts.published import load_published

CELL = Cell("c10", "resnet34", "tn", 0)
PER_IMAGE = [f"attack/{CELL.path}/eps0.1.npz", f"train/{CELL.path}/clean.npz"]
SMALL = {
    "grid": {"table1": {"datasets": ["c10"], "models": ["resnet34"], "methods": ["vanilla", "tn"]}},
    "seeds": [0],
    "attack": {"epsilons": [0.1]},
    "training": {"epochs": 2},
}


def fuzz(examples):
    """Deterministic, so that a failure is the same for everyone."""
    quiet = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large]
    return settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=quiet,
    )


NASTY = [
    None, True, False, 0, -1, 1, 2.0, 1e308, 1e-320, 10**400, -(10**400), 2**63,
    float("nan"), float("inf"), "", "0", "nan", "a" * 300, "a\nb", "\x1b[2J", "é\u202e\0", "../..",
    [], {}, [[]], [None], {"": {}}, [{}], {"a": [1, {"b": None}]}, [10**400], ["x"], [1, 1],
]  # fmt: skip
FEW = [None, -1, 10**400, "x", {}, ["x"]]  # where reading takes longer
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
VALUES = (
    st.sampled_from(NASTY)
    | st.recursive(
        SCALARS,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
        max_leaves=8,
    )
).map(copy.deepcopy)  # a value that is in two places must not be one


def places(value, path=()):
    """Places in nested mappings and lists, as paths of keys; of a list only both ends."""
    ends = {0, len(value) - 1} if isinstance(value, list) and value else set()
    items = value.items() if isinstance(value, dict) else [(i, value[i]) for i in ends]
    for key, item in items:
        yield (*path, key)
        if isinstance(item, dict | list):
            yield from places(item, (*path, key))


def replaced(valid, nasty=NASTY):
    """Every value of `valid` replaced by every nasty one, one at a time."""
    for *parents, last in places(valid):
        for value in nasty:
            copied = inner = copy.deepcopy(valid)
            for key in parents:
                inner = inner[key]
            inner[last] = copy.deepcopy(value)
            yield copied


@st.composite
def mutated(draw, valid):
    """A copy of `valid` with one to three changes."""
    value = copy.deepcopy(valid)
    for _ in range(draw(st.integers(1, 3))):
        *parents, last = draw(st.sampled_from(list(places(value)) or [("a",)]))
        inner = value
        for key in parents:
            inner = inner[key]
        change = draw(st.sampled_from(["replace", "replace", "drop", "swap", "add"]))
        if change == "drop" and last in places_of(inner):
            inner.pop(last)
        elif change == "add" and isinstance(inner, dict):
            inner[draw(st.text(max_size=8))] = draw(VALUES)
        elif change == "swap" and isinstance(inner, dict) and inner:
            other = draw(st.sampled_from(sorted(inner, key=str)))
            inner[last] = copy.deepcopy(inner[other])
        else:
            inner[last] = draw(VALUES)
    return value


def places_of(inner):
    return inner if isinstance(inner, dict) else range(len(inner))


def only_user_errors(read, *args, **options):
    """The value that a reader gives, or None and a message of one line."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        try:
            return read(*args, **options)
        except UserError as error:
            message = str(error)
            assert len(message.splitlines()) == 1
            assert message.isprintable()
            assert len(message) < 2100
            return None


# ---- YAML: studies, the machine, claims

STUDY = validated(
    yaml.safe_load((ROOT / "config/studies/demo.yaml").read_text()), "study", "demo.yaml"
)  # with every key that has a default
MACHINE = validated(
    yaml.safe_load((ROOT / "config/config.yaml").read_text()), "config", "config.yaml"
)
DEFAULTS = machine_from_dict({})
CLAIMS = yaml.safe_load((ROOT / "config/claims.yaml").read_text())
TEXTS = [
    (ROOT / path).read_text()
    for path in ("config/studies/demo.yaml", "config/config.yaml", "config/claims.yaml")
]
TAGS = ["!!int ", "!!float ", "!!bool ", "!!timestamp ", "!!map ", "!!set ", "!!omap ", "!!null "]
YAML_PARTS = st.lists(
    st.sampled_from([*TAGS, "- ", ": ", "a", "0x" + "f" * 6000, "&a ", "*a", "[", "]", "{", "}",
                     ",", "\n", "  ", "? ", "<<: ", "2001-99-99", "1:99", ".nan", "|", ">", "'",
                     '"', "\t", "%", "@", "---\n", "...\n", "\0", "seeds: ", "grid: "]),
    max_size=12,
).map("".join)  # fmt: skip


def read_all_yaml(path):
    for read in (load_study, load_machine, load_claims):
        only_user_errors(read, str(path) if read is load_study else path)


@fuzz(150)
@given(content=st.binary(max_size=80) | YAML_PARTS.map(str.encode))
def test_any_bytes_as_yaml(tmp_path, content):
    path = tmp_path / "study.yaml"
    path.write_bytes(content)
    read_all_yaml(path)


@fuzz(100)
@given(text=st.sampled_from(TEXTS), part=YAML_PARTS, share=st.floats(0, 1), cut=st.integers(0, 40))
def test_a_yaml_file_with_something_else_in_it(tmp_path, text, part, share, cut):
    at, path = int(share * len(text)), tmp_path / "study.yaml"
    path.write_text(text[:at] + part + text[at + cut :])
    read_all_yaml(path)


@fuzz(100)
@given(raw=mutated(STUDY))
def test_a_mutated_study_is_read_or_refused(raw):
    check_study(raw)


def test_a_study_with_any_nasty_value_is_read_or_refused():
    for raw in replaced(STUDY):
        check_study(raw)


def check_study(raw):
    """A study that is accepted can be planned: its slices are JSON, its paths are safe."""
    study = only_user_errors(study_from_dict, raw, name="fuzz", where="fuzz.yaml")
    for cell in study.cells if study else ():
        json.dumps(study.train_slice(cell, DEFAULTS), allow_nan=False)
        assert re.fullmatch(r"[\w.-]+/[\w.-]+/[\w.-]+/seed\d+", cell.path, re.ASCII)
    for epsilon in study.attack.epsilons if study else ():
        json.dumps(study.attack_slice(epsilon), allow_nan=False)


def test_any_nasty_setting_is_read_or_refused():
    for raw in replaced(MACHINE):
        only_user_errors(machine_from_dict, raw, where="config.yaml")


@fuzz(100)
@given(raw=mutated(MACHINE))
def test_mutated_settings_are_read_or_refused(raw):
    only_user_errors(machine_from_dict, raw, where="config.yaml")


@fuzz(50)
@given(raw=mutated(CLAIMS))
def test_mutated_claims_are_read_or_refused(tmp_path, raw):
    path = tmp_path / "claims.yaml"
    path.write_text(yaml.safe_dump(raw, allow_unicode=True), encoding="utf-8", errors="replace")
    only_user_errors(load_claims, path)


@fuzz(150)
@given(
    pair=st.text(max_size=20)
    | st.tuples(st.sampled_from(sorted(MACHINE)), YAML_PARTS).map("=".join)
)
def test_any_setting_of_the_command_line(pair):
    only_user_errors(lambda: load_machine(overrides=arguments.settings([pair])))


# ---- tables of numbers

PUBLISHED = (ROOT / "config/published.csv").read_text()
CSV_PARTS = st.lists(
    st.sampled_from([",", "\n", "\r", '"', "1", "nan", "1e999", "x", "\0", "é", "clean", "robust",
                     "-1", "9" * 400, " ", ";"]),
    max_size=8,
).map("".join)  # fmt: skip


@fuzz(100)
@given(part=CSV_PARTS, share=st.floats(0, 0.2), cut=st.integers(0, 60))
def test_published_numbers_with_something_else_in_them(tmp_path, part, share, cut):
    at, path = int(share * len(PUBLISHED)), tmp_path / "published.csv"
    path.write_text(PUBLISHED[:at] + part + PUBLISHED[at + cut :])
    only_user_errors(load_published, path)


@fuzz(50)
@given(content=st.binary(max_size=60))
def test_any_bytes_as_published_numbers(tmp_path, content):
    path = tmp_path / "published.csv"
    path.write_bytes(content)
    only_user_errors(load_published, path)


# ---- records


@pytest.fixture(scope="module")
def study():
    return synthetic.study("small", **SMALL)


@pytest.fixture(scope="module")
def folder(study, tmp_path_factory):
    """A finished study with an audit; every test puts back what it damages."""
    folder = synthetic.write(study, tmp_path_factory.mktemp("fuzz"), synthetic.World(images=10))
    synthetic.write_audits(study, folder)
    return folder


def read_study(study, folder):
    """Everything that tables, figures, `verify` and `track` read."""
    results = load_results(study, folder.parent, synthetic.machine())
    audits.read_audits(results)
    for cell in results.trained:
        results.history(cell)
        results.curve(cell, 0.1)


def read_in_every_way(study, folder):
    only_user_errors(read_study, study, folder)
    only_user_errors(read_cell, folder, study.name, CELL)
    recorded = only_user_errors(ledger.read_cell, folder, CELL, CELL)
    if recorded is not None:
        only_user_errors(verify._check_complete, folder, CELL, recorded)


def damaged(path, content, read):
    before = path.read_bytes()
    try:
        path.write_bytes(content)
        read()
    finally:
        path.write_bytes(before)


RECORDS = {
    "train": f"train/{CELL.path}/record.json",
    "attack": f"attack/{CELL.path}/eps0.1.json",
    "audit": f"audit/{CELL.path}/audit.json",
}


@pytest.mark.parametrize("stage", RECORDS)
def test_records_with_any_nasty_value_are_read_or_refused(study, folder, stage):
    path = folder / RECORDS[stage]
    for record in replaced(json.loads(path.read_text()), FEW):
        damaged(path, json.dumps(record).encode(), lambda: read_in_every_way(study, folder))


@fuzz(60)
@given(value=st.data())
@pytest.mark.parametrize("stage", RECORDS)
def test_mutated_records_are_read_or_refused(study, folder, stage, value):
    record = value.draw(mutated(json.loads((folder / RECORDS[stage]).read_text())))
    content = json.dumps(record).encode(errors="replace")
    damaged(folder / RECORDS[stage], content, lambda: read_in_every_way(study, folder))


@fuzz(60)
@given(content=st.binary(max_size=60) | VALUES.map(lambda value: json.dumps(value).encode()))
@pytest.mark.parametrize("stage", RECORDS)
def test_anything_as_a_record(study, folder, stage, content):
    damaged(folder / RECORDS[stage], content, lambda: read_in_every_way(study, folder))


@fuzz(120)
@given(
    content=st.binary(max_size=60)
    | st.tuples(st.sampled_from([",".join(HISTORY), "", "epoch"]), CSV_PARTS)
    .map("\n".join)
    .map(str.encode)
)
def test_anything_as_a_history(study, folder, content):
    path = folder / f"train/{CELL.path}/history.csv"
    damaged(path, content, lambda: read_in_every_way(study, folder))


@fuzz(100)
@given(value=st.data())
def test_a_mutated_ledger_is_read_or_refused(study, folder, value):
    """The ledger has the cell under a seed that has no record beside it."""
    cell, path = CELL._replace(seed=5), StudyPaths(folder).ledger
    entry = {**ledger.read_cell(folder, CELL, CELL), "history": {}}
    whole = {"schema": 1, "study": study.name, "cells": {cell.path: entry}}
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(value.draw(mutated(whole))), errors="replace")
    recorded = only_user_errors(ledger.read_cell, folder, cell, cell)
    if recorded is not None:
        only_user_errors(verify._check_complete, folder, cell, recorded)
    path.unlink()


# ---- arrays


def npz_bytes(**arrays):
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


LABELS = np.arange(6) % 2
IMAGES = npz_bytes(
    train_x=np.zeros((6, 4, 4, 3), np.uint8),
    train_y=LABELS,
    test_x=np.zeros((6, 4, 4, 3), np.uint8),
    test_y=LABELS,
)


@st.composite
def corrupted(draw, valid):
    """Bytes flipped, cut, doubled or replaced."""
    content = bytearray(valid)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, max(len(content) - 1, 0)))
        change = draw(st.sampled_from(["flip", "flip", "cut", "insert", "zero"]))
        if change == "cut":
            del content[at:]
        elif change == "insert":
            content[at:at] = draw(st.binary(min_size=1, max_size=12))
        elif content:
            content[at] = 0 if change == "zero" else content[at] ^ draw(st.integers(1, 255))
    return bytes(content)


@fuzz(200)
@given(content=corrupted(IMAGES) | st.binary(max_size=100))
def test_corrupted_images_of_a_user(tmp_path, content):
    path = tmp_path / "own.npz"
    path.write_bytes(content)
    only_user_errors(read_images, path)


@fuzz(100)
@given(value=st.data())
@pytest.mark.parametrize("name", PER_IMAGE)
def test_corrupted_results_per_image(study, folder, name, value):
    path = folder / name
    content = value.draw(corrupted(path.read_bytes()) | st.binary(max_size=100))
    damaged(path, content, lambda: only_user_errors(read_study, study, folder))


ARRAYS = st.sampled_from(
    [
        np.ones((40, 10), bool), np.ones(20, bool), np.ones((40, 10)), np.array("x"), np.array([]),
        np.array(["a"] * 20), np.zeros((0, 10), bool), np.arange(10), np.arange(10) - 5,
        np.arange(10.0), np.array(True), np.zeros(20, "M8[s]"), np.zeros(20, [("a", "i4")]),
        np.array([2**63], np.uint64), np.zeros((1, 1, 1), complex),
    ]
)  # fmt: skip


@fuzz(100)
@given(correct=ARRAYS, indices=ARRAYS, name=st.sampled_from(PER_IMAGE))
def test_other_arrays_as_results_per_image(study, folder, name, correct, indices):
    path, content = folder / name, npz_bytes(correct=correct, indices=indices)
    damaged(path, content, lambda: only_user_errors(read_study, study, folder))


@fuzz(100)
@given(value=st.data())
def test_other_arrays_as_images_of_a_user(tmp_path, value):
    names = ("train_x", "train_y", "test_x", "test_y")
    (tmp_path / "own.npz").write_bytes(npz_bytes(**{name: value.draw(ARRAYS) for name in names}))
    only_user_errors(read_images, tmp_path / "own.npz")


@fuzz(150)
@given(content=st.data())
def test_a_partial_file_is_used_or_told_of_in_one_line(tmp_path, capsys, content):
    path = tmp_path / "eps0.1.partial"
    whole = {"key": np.array("k"), "seconds": np.array(1.0), "correct": np.ones((3, 4), bool)}
    write_npz(path, whole, compress=False)
    path.write_bytes(content.draw(corrupted(path.read_bytes()) | st.binary(max_size=60)))
    partial = Partial(path, "k", ["correct"])
    partial.load(10)
    assert capsys.readouterr().err.count("\n") == (not partial.arrays)
    assert partial.done <= 10


# ---- prepared data


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("prepared")
    (folder / "own.npz").write_bytes(IMAGES)
    prepare("own", folder / "own", data_dir=folder, path=folder / "own.npz")
    return folder / "own"


def test_a_manifest_with_any_nasty_value_is_read_or_refused(prepared):
    path = prepared / "manifest.json"
    for raw in replaced(json.loads(path.read_text()), FEW):
        content = json.dumps(raw).encode()
        damaged(path, content, lambda: only_user_errors(load, prepared, verify=True))


@fuzz(60)
@given(value=st.data())
def test_a_mutated_manifest_is_read_or_refused(prepared, value):
    path = prepared / "manifest.json"
    raw = value.draw(mutated(json.loads(path.read_text())) | VALUES)
    content = json.dumps(raw).encode(errors="replace")
    damaged(path, content, lambda: only_user_errors(load, prepared, verify=True))


@fuzz(100)
@given(value=st.data())
@pytest.mark.parametrize("name", ["train_x", "test_y"])
def test_corrupted_arrays_are_never_taken_for_the_prepared_ones(prepared, name, value):
    path = prepared / f"{name}.npy"
    before = load(prepared, verify=True)
    content = value.draw(corrupted(path.read_bytes()))

    def read():
        found = only_user_errors(load, prepared, verify=True)
        assert found is None or torch.equal(getattr(found, name), getattr(before, name).clone())

    if content != path.read_bytes():
        damaged(path, content, read)


# ---- checkpoints

STATE = {"trainer": {"model": {"w": torch.arange(3.0)}, "epoch": 2}, "seconds": 1.0}


@fuzz(150)
@given(value=st.data())
def test_a_checkpoint_is_a_state_or_nothing(tmp_path, capsys, value):
    path = tmp_path / "checkpoint.pt"
    checkpoint.save(path, STATE, identity="me", code={})
    path.write_bytes(value.draw(corrupted(path.read_bytes()) | st.binary(max_size=100)))
    state = checkpoint.load(path, identity="me", code={})
    assert state is None or isinstance(state, dict)
    assert capsys.readouterr().err.count("\n") == (state is None)


@fuzz(60)
@given(content=VALUES | st.fixed_dictionaries({"identity": st.just("me"), "state": VALUES}))
def test_anything_saved_as_a_checkpoint(tmp_path, capsys, content):
    path = tmp_path / "checkpoint.pt"
    torch.save(content, path)
    state = checkpoint.load(path, identity="me", code={})
    assert state is None or isinstance(state, dict)
    assert capsys.readouterr().err.count("\n") == (state is None)
