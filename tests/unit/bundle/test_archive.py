"""A bundle that is damaged or hostile is one line that names it, and nothing is written."""

import hashlib
import json
import stat
import zipfile

import pytest

from tests.bundles import Lab, rewritten
from tnfdt.bundle import archive, merge
from tnfdt.bundle.rebuild import rebuild
from tnfdt.study.schema import UserError

RECORD = "train/c10/resnet34/tn/seed0/record.json"
ARRAY = "attack/c10/resnet34/tn/seed0/eps0.1.bits"


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    return Lab(tmp_path_factory.mktemp("lab")).pack()


@pytest.fixture(scope="module")
def manifest(packed):
    with zipfile.ZipFile(packed) as archive:
        return json.loads(archive.read("bundle.json"))


def truncated(packed, out, manifest):
    out.write_bytes(packed.read_bytes()[:-2000])


def garbled(packed, out, manifest):
    data = bytearray(packed.read_bytes())
    data[len(data) // 2] ^= 255
    out.write_bytes(data)


def no_zip(packed, out, manifest):
    out.write_text("not a bundle")


def absent(packed, out, manifest):
    pass


def plain_zip(packed, out, manifest):
    rewritten(packed, out, {"bundle.json": None})


def no_json(packed, out, manifest):
    rewritten(packed, out, {"bundle.json": b"{"})


def other_version(packed, out, manifest):
    rewritten(packed, out, manifest={"schema": 2})


def unknown_key(packed, out, manifest):
    rewritten(packed, out, manifest={"code_to_run": "x"})


def changed(packed, out, manifest):
    rewritten(packed, out, {RECORD: b"{}"})


def listed(manifest, name, content=b"x", **entry):
    sha = hashlib.sha256(content).hexdigest()
    return {"files": {**manifest["files"], name: {"sha256": sha, **entry}}}


def absolute(packed, out, manifest):
    rewritten(packed, out, {"/etc/x": b"x"}, listed(manifest, "/etc/x"))


def upward(packed, out, manifest):
    name = "train/../../x"
    rewritten(packed, out, {name: b"x"}, listed(manifest, name))


def backslash(packed, out, manifest):
    name = "train\\..\\x"
    rewritten(packed, out, {name: b"x"}, listed(manifest, name))


def no_study(packed, out, manifest):
    files = {name: entry for name, entry in manifest["files"].items() if name != "study.yaml"}
    rewritten(packed, out, {"study.yaml": None}, {"files": files})


def study_elsewhere(packed, out, manifest):
    rewritten(packed, out, manifest={"study": "../elsewhere"})


def unlisted(packed, out, manifest):
    rewritten(packed, out, {"train/extra": b"x"})


def missing(packed, out, manifest):
    rewritten(packed, out, {RECORD: None})


def bomb(packed, out, manifest):
    zeros = bytes(archive.LARGEST + 1)
    rewritten(packed, out, {"train/zeros": zeros}, listed(manifest, "train/zeros", zeros))


def many_bombs(packed, out, manifest):
    zeros = {f"train/{i}": bytes(archive.LARGEST) for i in range(17)}
    rewritten(packed, out, zeros)


def array_bomb(packed, out, manifest):
    entry = manifest["files"][ARRAY]
    large = {**entry, "arrays": {"correct": ["bool", [4_000_000_000, 4_000_000_000]]}}
    rewritten(packed, out, manifest={"files": {**manifest["files"], ARRAY: large}})


def pickled_type(packed, out, manifest):
    entry = {**manifest["files"][ARRAY], "arrays": {"correct": ["object", [1]]}}
    rewritten(packed, out, manifest={"files": {**manifest["files"], ARRAY: entry}})


def twice(packed, out, manifest):
    out.write_bytes(packed.read_bytes())
    with pytest.warns(UserWarning, match="Duplicate"), zipfile.ZipFile(out, "a") as archive:
        archive.writestr(RECORD, b"{}")


def symlink(packed, out, manifest):
    out.write_bytes(packed.read_bytes())
    info = zipfile.ZipInfo("train/link")
    info.create_system, info.external_attr = 3, (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(out, "a") as archive:
        archive.writestr(info, "/etc/passwd")


def with_record(packed, out, manifest, **metrics):
    """A record that says otherwise than its array, with the right checksum."""
    with zipfile.ZipFile(packed) as archive:
        record = json.loads(archive.read(RECORD))
    record["metrics"] |= metrics
    content = json.dumps(record).encode()
    rewritten(packed, out, {RECORD: content}, listed(manifest, RECORD, content))


def disagreeing(packed, out, manifest):
    with_record(packed, out, manifest, accuracy=0.5)


def other_settings(packed, out, manifest):
    with zipfile.ZipFile(packed) as archive:
        text = archive.read("study.yaml").replace(b"epochs: 3", b"epochs: 4")
    rewritten(packed, out, {"study.yaml": text}, listed(manifest, "study.yaml", text))


def tagged_yaml(packed, out, manifest):
    text = b"!!python/object/apply:os.system ['touch pwned']"
    rewritten(packed, out, {"study.yaml": text}, listed(manifest, "study.yaml", text))


CASES = {
    truncated: "not a whole bundle",
    garbled: "not a whole bundle",
    no_zip: "not a whole bundle",
    absent: "does not exist",
    plain_zip: "not an evidence bundle",
    no_json: "not JSON",
    other_version: "version 2",
    unknown_key: "code_to_run",
    changed: "was changed",
    absolute: "bundle.json: files",
    upward: "bundle.json: files",
    backslash: "bundle.json: files",
    no_study: "study.yaml",
    study_elsewhere: "bundle.json: study",
    unlisted: "train/extra",
    missing: RECORD,
    bomb: "too large",
    many_bombs: "too large",
    array_bomb: "not of its arrays",
    pickled_type: "object",
    twice: "twice",
    symlink: "not a plain file",
    disagreeing: "not of one run",
    other_settings: "other settings",
    tagged_yaml: "not valid YAML",
}


@pytest.mark.parametrize("spoil", CASES, ids=lambda case: case.__name__)
def test_one_line_names_it_and_nothing_is_written(spoil, packed, manifest, tmp_path, monkeypatch):
    place, scratch = tmp_path / "bad.zip", tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    monkeypatch.chdir(tmp_path)
    spoil(packed, place, manifest)
    before = {*tmp_path.rglob("*")}
    for run in (
        lambda: rebuild(place, tmp_path / "out"),
        lambda: merge.merge([packed, place], tmp_path / "merged.zip"),
    ):
        with pytest.raises(UserError, match=r"bad\.zip") as caught:
            run()
        assert CASES[spoil] in str(caught.value)
        assert "\n" not in str(caught.value)
        assert str(scratch) not in str(caught.value)
        assert {*tmp_path.rglob("*")} == before


def test_the_same_results_give_the_same_bytes(packed, tmp_path):
    assert Lab(tmp_path).pack().read_bytes() == packed.read_bytes()
    infos = zipfile.ZipFile(packed).infolist()
    assert {info.date_time for info in infos} == {(1980, 1, 1, 0, 0, 0)}
    assert [info.filename for info in infos] == sorted(info.filename for info in infos)
