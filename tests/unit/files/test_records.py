"""Records: written whole or not at all, and read back only as what they are."""

import json
import os
import platform
import re
import subprocess

import pytest

from tnfdt.files import atomic
from tnfdt.files.atomic import atomic_path, read_json, sha256_file, write_json
from tnfdt.files.provenance import provenance
from tnfdt.files.records import identity, read_record
from tnfdt.study.paths import Cell
from tnfdt.study.schema import UserError

CELL = Cell("digits", "wrn10_1", "tn", 0)
RECORD = {"schema": 1, "stage": "train", **identity("demo", CELL), "metrics": {"accuracy": 0.5}}


def read(path):
    return read_record(path, stage="train", study="demo", cell=CELL)


def test_json_round_trip(tmp_path):
    path = tmp_path / "a" / "record.json"
    write_json(path, RECORD)
    assert read(path) == RECORD
    assert os.listdir(path.parent) == ["record.json"]


def test_an_error_while_writing_leaves_the_old_file_and_no_other(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(RuntimeError), atomic_path(path) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["file"]


def test_no_space_is_one_line_and_leaves_nothing(tmp_path):
    path = tmp_path / "file"
    with pytest.raises(UserError, match="No space left"), atomic_path(path) as temporary:
        temporary.write_text("half")
        raise OSError(28, "No space left on device")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("name", ["pipe", ".", "folder", "file/in"])
def test_what_is_no_plain_file_is_not_replaced(tmp_path, name):
    """As /dev/null would be by whoever may write to /dev."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("text")
    with pytest.raises(UserError, match="cannot write") as caught:
        write_json(tmp_path / name, {})
    assert ".tmp" not in str(caught.value)
    assert (tmp_path / "pipe").is_fifo()
    assert sorted(os.listdir(tmp_path)) == ["file", "folder", "pipe"]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_nan_is_never_a_result(tmp_path, value):
    with pytest.raises(UserError, match="NaN or infinite"):
        write_json(tmp_path / "r.json", {"metrics": {"accuracy": value}})
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"study": "other"}, "study is 'other', expected 'demo'"),
        ({"seed": 1}, "seed is 1"),
        ({"schema": 2}, "schema is 2"),
        ({"stage": "attack"}, "stage"),
        ({"metrics": None}, "metrics"),
        ({"metrics": {"accuracy": "0.5", "loss": {}}}, "metric loss"),
    ],
)
def test_a_record_of_something_else_is_refused(tmp_path, change, word):
    path = tmp_path / "record.json"
    path.write_text(json.dumps({**RECORD, **change}))
    with pytest.raises(UserError, match=re.escape(word)) as caught:
        read(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"metrics": {"accuracy": NaN}}', "\xff", "[" * 10**5]
)
def test_a_torn_record_is_one_line(tmp_path, text):
    path = tmp_path / "record.json"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(UserError, match=re.escape(str(path))) as caught:
        read(path)
    assert "\n" not in str(caught.value)


def test_a_missing_record(tmp_path):
    with pytest.raises(UserError, match="does not exist"):
        read_json(tmp_path / "none.json")


def test_provenance_names_commit_versions_and_hardware():
    made = provenance()
    assert re.fullmatch(r"([0-9a-f]{40}|unknown)(\+changes)?", made["commit"])
    assert {"python", "torch", "timm", "foolbox", "mlflow", "snakemake"} <= set(made["versions"])
    assert made["hardware"]["cores"] >= 1
    if platform.machine() == "x86_64":  # "AMD EPYC" alone is many processors
        assert re.search(r" \d+/\d+/\d+$", made["hardware"]["cpu"])


def test_sha256(tmp_path):
    (tmp_path / "x").write_bytes(b"abc")
    assert sha256_file(tmp_path / "x").startswith("ba7816bf8f01cfea414140de5dae2223")


def test_temporary_files_of_dead_processes_go_and_those_of_the_living_stay(tmp_path):
    with subprocess.Popen(["true"]) as process:
        process.wait()
    owner = atomic._OWNER.strip(".")
    dead, living, foreign = (
        tmp_path / f".record.json.{name}.tmp"
        for name in (
            f"{owner}.{process.pid}",
            f"{owner}.{os.getppid()}",
            f"elsewhere.{process.pid}",
        )
    )
    for path in (dead, living, foreign):
        path.touch()
    write_json(tmp_path / "other.json", {})
    assert {path.name for path in tmp_path.iterdir()} == {living.name, foreign.name, "other.json"}
