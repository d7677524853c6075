"""Bundles: tables come out of them as they went in, and parts of a study add up to it."""

import hashlib
import json
import shutil
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest
import rocrate
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from tests import synthetic
from tests.bundles import Lab, contents, rewritten
from tests.synthetic import World
from tnfdt.bundle import merge
from tnfdt.bundle.rebuild import opened, rebuild
from tnfdt.files.atomic import read_json, write_json
from tnfdt.study.looks import Looks, as_json
from tnfdt.study.products import PICTURES
from tnfdt.study.schema import UserError
from tnfdt.study.study import load_study
from tnfdt.tables import stage

TEXTS = ("tables", "summary")  # all that is judged; figures take seconds


def made(lab, parts=None):
    return contents(lab.folder, stage.run(lab.study, lab.folder.parent, lab.machine, parts))


def rebuilt(path, out, parts=None):
    return contents(out, rebuild(path, out, parts))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return Lab(tmp_path_factory.mktemp("whole"))


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    """The same study, a lab a seed."""
    folder = tmp_path_factory.mktemp("parts")
    return [Lab(folder / str(seed), seeds=[seed]).pack() for seed in (0, 1, 2)]


def test_everything_without_a_network_is_rebuilt_byte_for_byte(tmp_path, monkeypatch):
    """And nothing but the file is read: what it was made from is gone."""
    lab = Lab(tmp_path / "lab")
    original, path = made(lab), shutil.copy(lab.pack(), tmp_path)
    shutil.rmtree(tmp_path / "lab")
    for name in ("CLAIMS", "PUBLISHED"):
        monkeypatch.setattr(stage, name, tmp_path / "gone")
    monkeypatch.setattr("tnfdt.study.machine.load_machine", None)
    again = rebuilt(Path(path), tmp_path / "out")
    assert {name for name in original if Path(name).stem not in PICTURES} == {*again}
    assert {name for name in again if again[name] != original[name]} == set()


def test_a_study_split_by_seed_gives_the_tables_of_the_whole(whole, parts, tmp_path):
    merged = merge.merge(parts, tmp_path / "merged.zip")
    assert rebuilt(merged, tmp_path / "out", TEXTS) == made(whole, TEXTS)
    assert merged.read_bytes() == whole.pack().read_bytes()


MULTIVERSE = {"include": True, "stem": ["imagenet"], "random_start": [True]}


def test_other_readings_travel_and_merge_too(tmp_path):
    """Tables and curves of a study with a multiverse, of its bundle, and of its merged parts."""
    lab = Lab(tmp_path / "whole", multiverse=MULTIVERSE)
    original, path = made(lab, (*TEXTS, "multiverse")), lab.pack()
    assert "tables/multiverse.md" in original
    assert "figures/readings_tn-clean.png" in original
    assert b"of 2 other readings" in original["tables/claims.md"]
    assert b"multiverse,c10,resnet34,tn.random_start-true" in original["tables/sources.csv"]
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
    assert "train/c10/resnet34/tn.stem-imagenet/seed0/history.csv" in names
    assert "attack/c10/resnet34/tn.random_start-true/seed0/eps0.1.bits" in names
    parts = [Lab(tmp_path / f"{s}", seeds=[s], multiverse=MULTIVERSE).pack() for s in (0, 1, 2)]
    merged = merge.merge(parts, tmp_path / "merged.zip")
    assert merged.read_bytes() == path.read_bytes()
    assert rebuilt(merged, tmp_path / "out", (*TEXTS, "multiverse")) == original


def test_readings_that_a_study_does_not_include_change_nothing(tmp_path):
    """They are no inputs of the rules that make its tables and its bundle."""
    readings = {key: value for key, value in MULTIVERSE.items() if key != "include"}
    lab, alone = Lab(tmp_path / "a", multiverse=readings), Lab(tmp_path / "b")
    shutil.rmtree(lab.folder / "train/c10/resnet34/tn.stem-imagenet")  # not run to the end
    assert made(lab, TEXTS) == made(alone, TEXTS)
    with zipfile.ZipFile(lab.pack()) as archive:
        assert not [name for name in archive.namelist() if "stem-imagenet" in name]


@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(order=st.permutations(range(3)), cut=st.integers(0, 2), again=st.booleans())
def test_the_order_of_a_merge_does_not_matter(parts, tmp_path_factory, order, cut, again):
    """Merged bundles merge again, and a part that is in both counts once."""
    folder = tmp_path_factory.mktemp("order")
    chosen = [parts[place] for place in order]
    first = merge.merge(chosen[: cut + 1], folder / "first.zip")
    rest = [*chosen[cut + 1 :], *([chosen[0]] if again else [])]
    last = merge.merge([*rest, first], folder / "last.zip")
    assert last.read_bytes() == merge.merge(parts, folder / "plain.zip").read_bytes()


def second_look(folder, skip=(), seen=()):
    """A lab whose study has begun its second look in all rows, without the cells `skip`."""
    lab, looks = Lab(folder, seeds={"looks": [2, 4]}), (2, 4)
    rows = dict.fromkeys((cell.row for cell in lab.study.cells), 4)
    state = Looks(planned=looks, look=2, rows=rows, seen=tuple(seen))
    write_json(lab.folder / "looks.json", as_json(state))
    lab.study = load_study(str(lab.file), lab.machine.results_dir)
    left_out = tuple(cell for cell in lab.study.cells if (cell.method, cell.seed) in skip)
    synthetic.write(lab.study, lab.folder.parent, World(images=40), skip=left_out)
    return lab


SOME = [("vanilla", 3), ("tn", 2), ("tn", 3)]
OTHERS = [("vanilla", 2), ("fdt", 2), ("fdt", 3)]


def look_of(texts):
    return json.loads(texts["tables/claims.json"])["look"].partition(",")[0]


@pytest.mark.parametrize("seen", [[], [2]])
def test_a_look_without_all_its_results_is_rebuilt_with_all_that_it_has(tmp_path, seen):
    """9 of its 12 trainings are there: they are packed, and judged at the look before."""
    lab = second_look(tmp_path / "lab", SOME, seen)
    original, path = made(lab, TEXTS), lab.pack()
    assert look_of(original) == "Look 1 of 2"
    assert b"9 of 12 trainings" in original["summary.md"]
    assert rebuilt(path, tmp_path / "out", TEXTS) == original
    assert merge.merge([path], tmp_path / "same.zip").read_bytes() == path.read_bytes()


def test_the_parts_of_a_look_merge_into_the_whole_of_it(tmp_path):
    parts = [second_look(tmp_path / name, skip) for name, skip in (("a", SOME), ("b", OTHERS))]
    whole = second_look(tmp_path / "whole")
    merged = merge.merge([part.pack() for part in parts], tmp_path / "merged.zip")
    again = rebuilt(merged, tmp_path / "out", TEXTS)
    assert look_of(again) == "Look 2 of 2"
    assert again == made(whole, TEXTS)
    assert merged.read_bytes() == whole.pack().read_bytes()


def test_tables_name_the_labs_with_vanilla_side_by_side(tmp_path):
    a, b = (Lab(tmp_path / str(s), seeds=[s]).pack(lab=f"Lab {s}") for s in (0, 1))
    merged = merge.merge([a, b], tmp_path / "merged.zip")
    again = rebuilt(merged, tmp_path / "out", TEXTS)
    rows = again["tables/labs.csv"].decode().splitlines()
    assert len(rows) == 1 + 3 * 2  # clean and two epsilons of two labs
    assert rows[1].startswith("c10,resnet34,clean,Lab 0,1,")
    for name in ("tables/labs.md", "summary.md"):
        text = again[name].decode()
        assert "Lab 0 | Lab 1" in text
        assert "| C10 | ResNet-34 | ε=10⁻¹ | " in text


def test_a_bundle_that_is_there_is_not_replaced_by_a_merge(parts, tmp_path):
    """`tnfdt merge --out a.zip b.zip`: a slip, and the evidence of lab A would be gone."""
    own = Path(shutil.copy(parts[0], tmp_path / "a.zip"))
    with pytest.raises(UserError, match=r"a\.zip exists"):
        merge.merge([parts[1]], own)
    assert own.read_bytes() == parts[0].read_bytes()


@pytest.mark.parametrize("part", ["multiverse", "activations"])
def test_what_a_bundle_cannot_give_is_one_line(parts, tmp_path, part):
    with pytest.raises(UserError, match=r"has no (networks|other readings)"):
        rebuilt(parts[0], tmp_path / "out", [part])
    assert not (tmp_path / "out").exists()


def other_study(tmp_path):
    return Lab(tmp_path / "b", seeds=[1], attack={"epsilons": [0.1, 0.01], "steps": 9}).pack()


def other_data(tmp_path):
    lab = Lab(tmp_path / "b", seeds=[1])
    for path in lab.folder.rglob("*.json"):
        write_json(path, {**read_json(path), "dataset_fingerprint": "another"})
    return lab.pack()


def other_code(tmp_path):
    lab = Lab(tmp_path / "b", seeds=[1])
    for path in lab.folder.rglob("*.json"):
        write_json(path, {**read_json(path), "versions": {"torch": "9"}})
    return lab.pack()


def other_commit(tmp_path):
    lab = Lab(tmp_path / "b", seeds=[1])
    for path in lab.folder.rglob("*.json"):
        write_json(path, {**read_json(path), "commit": "1" * 40})
    return lab.pack()


def other_cell(tmp_path):
    return Lab(tmp_path / "b", World(images=40, seed_sd=0.1), seeds=[0]).pack()


def other_claims(tmp_path):
    path = Lab(tmp_path / "b", seeds=[1]).pack()
    with zipfile.ZipFile(path) as archive:
        manifest = json.loads(archive.read("bundle.json"))
        text = archive.read("claims.yaml") + b"\n"
    manifest["files"]["claims.yaml"] = {"sha256": hashlib.sha256(text).hexdigest()}
    return rewritten(path, tmp_path / "b.zip", {"claims.yaml": text}, manifest)


@pytest.mark.parametrize(
    ("other", "named"),
    [
        (other_study, "study's attack.steps: 8 and 9;"),
        (other_data, "data of c10"),
        (other_code, "version of torch"),
        (other_commit, "version of commit"),
        (other_cell, "file attack/c10/resnet34/fdt/seed0"),
        (other_claims, "file claims.yaml"),
    ],
)
def test_what_differs_between_parts_is_one_line(other, named, tmp_path):
    first = Lab(tmp_path / "a", seeds=[0])
    if other is other_code:
        for path in first.folder.rglob("*.json"):
            write_json(path, {**read_json(path), "versions": {"torch": "8"}})
    out = tmp_path / "out.zip"
    with pytest.raises(UserError, match=named):
        merge.merge([first.pack(), other(tmp_path)], out)
    assert not out.exists()


def with_weights(folder):
    """A lab whose cells have weights that are theirs."""
    lab = Lab(folder, seeds=[0])
    for cell in lab.study.cells:
        path = lab.folder / "train" / cell.path / "model.safetensors"
        save_file({"w": torch.zeros(3)}, path)
    return Lab(folder, seeds=[0])  # again: the records now name these files


def test_weights_are_packed_where_they_are_asked_for(tmp_path):
    lab = with_weights(tmp_path)
    assert not any("safetensors" in name for name in zipfile.ZipFile(lab.pack()).namelist())
    path = shutil.copy(lab.pack(weights=True), tmp_path / "w.zip")
    with opened(path, weights=True) as material:
        kept = [*material.results.folder.rglob("*.safetensors")]
        assert len(kept) == len(lab.study.cells)
        original = lab.folder / kept[0].relative_to(material.results.folder)
        assert kept[0].read_bytes() == original.read_bytes()


def test_a_replaced_weights_file_is_one_line(tmp_path):
    lab = with_weights(tmp_path)
    path = lab.folder / "train" / lab.study.cells[1].path / "model.safetensors"
    save_file({"w": torch.ones(3)}, path)
    with pytest.raises(UserError, match=r"tn/seed0/model\.safetensors is not the file"):
        lab.pack()
    path.unlink()
    with pytest.raises(UserError, match=r"tn/seed0/model\.safetensors does not exist"):
        lab.pack(weights=True)
    assert not lab.folder.joinpath("evidence.zip").exists()


def test_an_outdated_record_or_an_empty_study_is_not_packed(whole, tmp_path):
    lab = Lab(tmp_path / "a")
    path = lab.folder / "train" / lab.study.cells[0].path / "record.json"
    record = read_json(path)
    write_json(path, {**record, "config": {**record["config"], "stem": "imagenet"}})
    with pytest.raises(UserError, match="other settings"):
        lab.pack()
    shutil.rmtree(lab.folder)
    with pytest.raises(UserError, match="no finished training"):
        lab.pack()


@pytest.fixture
def offline(monkeypatch):
    """The validator's one download, answered with the context inside the rocrate package.

    That is of RO-Crate 1.3, which has moved one of the terms that 1.1 defines.
    """
    from rocrate_validator.utils.http import HttpRequester

    context = json.loads(
        Path(rocrate.__file__).with_name("data").joinpath("ro-crate.jsonld").read_text()
    )
    context["@context"]["ComputationalWorkflow"] = "https://bioschemas.org/ComputationalWorkflow"
    kind = {"Content-Type": "application/ld+json"}
    answer = SimpleNamespace(status_code=200, headers=kind, json=lambda: context)
    monkeypatch.setattr(HttpRequester, "get", lambda self, url, **_: answer, raising=False)


def issues(path, folder):
    from rocrate_validator import models, services

    options = services.ValidationSettings(
        rocrate_uri=path,
        profile_identifier="workflow-run-crate",
        requirement_severity=models.Severity.REQUIRED,
        offline=True,
        cache_path=folder / "cache",
    )
    return [str(issue.message) for issue in services.validate(options).get_issues()]


def test_the_bundle_is_a_workflow_run_ro_crate(whole, offline, tmp_path):
    path = whole.pack(lab="A lab")
    assert issues(path, tmp_path) == []
    bad = rewritten(path, tmp_path / "bad.zip", {"Snakefile": None})
    assert any("Snakefile" in issue for issue in issues(bad, tmp_path))


def test_the_verdicts_are_data_in_the_crate(whole, tmp_path):
    with zipfile.ZipFile(whole.pack()) as archive:
        graph = json.loads(archive.read("ro-crate-metadata.json"))["@graph"]
    by_id = {entity["@id"]: entity for entity in graph}
    reviews = [entity for entity in graph if entity["@type"] == "ClaimReview"]
    claims = json.loads(made(whole, ["tables"])["tables/claims.json"])["claims"]
    words = {review["name"]: by_id[review["reviewRating"]["@id"]] for review in reviews}
    assert {name: rating["alternateName"] for name, rating in words.items()} == {
        claim["says"]: claim["verdict"] for claim in claims
    }


def test_the_papers_study_fits_into_30_mb(tmp_path):
    """One cell of the paper's size, 72 of which with four epsilons each make its 288 attacks."""
    grid = {"table1": {"datasets": ["c10"], "models": ["resnet34"], "methods": ["vanilla"]}}
    sizes = {"training": {}, "attack": {}, "audit": {}, "seeds": [0]}
    lab = Lab(tmp_path, World(images=10_000), grid=grid, **sizes)
    assert 72 * lab.pack().stat().st_size < 30e6
