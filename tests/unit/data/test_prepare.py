"""The prepared copy: whole or not there, made once, renewed when the request changes."""

import errno
import json
import multiprocessing
import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tnfdt.data.arrays import Arrays
from tnfdt.data.prepare import prepare
from tnfdt.data.prepared import load
from tnfdt.study.schema import UserError

prepare_module = sys.modules["tnfdt.data.prepare"]  # tnfdt.data.prepare is the function


def write_npz(path, seed=0, train=60):
    rng = np.random.default_rng(seed)
    arrays = {}
    for split, count in (("train", train), ("test", 20)):
        arrays[f"{split}_x"] = rng.integers(0, 256, (count, 8, 8, 3), dtype=np.uint8)
        arrays[f"{split}_y"] = np.arange(count) % 4
    np.savez(path, **arrays)
    return path


@pytest.fixture
def own(tmp_path):
    return write_npz(tmp_path / "own.npz")


def make(folder, path, **options):
    return prepare("own", folder / "out/own", data_dir=folder / "data", path=path, **options)


def stamps(folder):
    return {path.name: path.stat().st_mtime_ns for path in (folder / "out/own").iterdir()}


def leftovers(folder):
    """Everything beside the finished copy, except lock files."""
    out = folder / "out"
    return [path for path in out.rglob("*") if path.suffix != ".lock" and path != out / "own"]


def test_manifest_and_files(tmp_path, own):
    manifest = make(tmp_path, own, limit=SimpleNamespace(train=40, test=None))
    folder = tmp_path / "out/own"
    assert sorted(path.name for path in folder.iterdir()) == sorted(
        ["manifest.json", *(f"{key}.npy" for key in Arrays._fields)]
    )
    assert json.loads((folder / "manifest.json").read_text()) == manifest
    assert manifest["counts"] == {"train": [10] * 4, "test": [5] * 4}
    assert manifest["limit"] == {"train": 40, "test": None}
    assert manifest["num_classes"] == 4
    assert manifest["source"] == "own.npz"
    assert manifest["arrays"]["train_x"]["shape"] == [40, 3, 8, 8]
    assert str(tmp_path) not in json.dumps(manifest)  # the same bytes on every machine
    assert [path.name for path in (tmp_path / "out").iterdir() if path.suffix != ".lock"] == ["own"]


def test_plain_numpy_reads_the_files(tmp_path, own):
    make(tmp_path, own)
    stored = np.load(tmp_path / "out/own/train_x.npy")
    assert (stored.transpose(0, 2, 3, 1) == np.load(own)["train_x"]).all()


def test_twice_is_once(tmp_path, own):
    first = make(tmp_path, own)
    before = stamps(tmp_path)
    assert make(tmp_path, own) == first
    assert stamps(tmp_path) == before


def test_another_request_renews_the_copy(tmp_path, own):
    whole = make(tmp_path, own)
    part = make(tmp_path, own, limit=SimpleNamespace(train=12, test=8))
    assert part["fingerprint"] != whole["fingerprint"]
    assert len(load(tmp_path / "out/own", verify=True).train_x) == 12
    write_npz(own, seed=1)
    changed = make(tmp_path, own)
    assert changed["fingerprint"] not in (whole["fingerprint"], part["fingerprint"])
    assert load(tmp_path / "out/own", verify=True).fingerprint == changed["fingerprint"]


@pytest.mark.parametrize("damage", ["manifest", "array", "torn manifest", "short array"])
def test_a_damaged_copy_is_made_anew(tmp_path, own, damage):
    manifest = make(tmp_path, own)
    folder = tmp_path / "out/own"
    if damage == "manifest":
        (folder / "manifest.json").unlink()
    if damage == "array":
        (folder / "test_y.npy").unlink()
    if damage == "torn manifest":
        (folder / "manifest.json").write_text('{"schema": 1, "arr')
    if damage == "short array":
        os.truncate(folder / "train_x.npy", 200)
    assert make(tmp_path, own) == manifest
    load(folder, verify=True)


@pytest.mark.parametrize("call", [1, 3, 5])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_no_space_left(tmp_path, own, monkeypatch, call, code):
    """The disk fills up in the first or a later array; after making room the rerun works."""
    calls, fsync = [], os.fsync

    def full(descriptor):
        calls.append(descriptor)
        if len(calls) == call:
            raise OSError(code, os.strerror(code))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UserError, match=r"(?i)(no space left|quota).* free (some|space)"):
        make(tmp_path, own)
    assert not leftovers(tmp_path)
    monkeypatch.undo()
    make(tmp_path, own)
    load(tmp_path / "out/own", verify=True)


@pytest.mark.parametrize("older", [False, True])
@pytest.mark.parametrize("moved", [0, 1, 4])
def test_killed_before_the_manifest_means_not_there(tmp_path, own, monkeypatch, older, moved):
    """Also where an older copy was there: never the arrays of one with the manifest of another."""
    if older:
        make(tmp_path, own)
        write_npz(own, seed=1)
    replace, moves = Path.replace, []

    def killed(self, target):
        if target.parent.name == "own":
            moves.append(target)
            if len(moves) > moved:
                raise KeyboardInterrupt
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        make(tmp_path, own)
    with pytest.raises(UserError, match=r"manifest.json does not exist"):
        load(tmp_path / "out/own")
    monkeypatch.undo()
    make(tmp_path, own)
    load(tmp_path / "out/own", verify=True)


def test_what_a_killed_process_left_is_removed(tmp_path, own):
    stale = tmp_path / "out/.own.partial"
    stale.mkdir(parents=True)
    (stale / "train_x.npy").write_bytes(b"half")
    make(tmp_path, own)
    assert not stale.exists()


def test_a_bad_file_leaves_nothing_and_a_repair_works(tmp_path, own):
    whole = own.read_bytes()
    own.write_bytes(whole[:-100])
    with pytest.raises(UserError, match=r"not a readable .npz"):
        make(tmp_path, own)
    assert not leftovers(tmp_path)
    own.write_bytes(whole)
    make(tmp_path, own)


def test_a_bad_file_does_not_cost_the_good_copy(tmp_path, own):
    before = make(tmp_path, own)
    own.write_bytes(b"")
    with pytest.raises(UserError):
        make(tmp_path, own)
    assert load(tmp_path / "out/own", verify=True).fingerprint == before["fingerprint"]


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(UserError, match=r"own: .*gone.npz does not exist"):
        make(tmp_path, tmp_path / "gone.npz")


def test_an_output_that_cannot_be_written_is_one_line(tmp_path, own):
    (tmp_path / "out").write_text("a file where the folder should be")
    with pytest.raises(UserError, match=r"out: (File exists|Not a directory)"):
        make(tmp_path, own)


def _prepare_slowly(folder, path, barrier, results):
    """In a process of its own: count how often the file is really read."""
    read = prepare_module.read_npz

    def slow(source):
        results.put("read")
        time.sleep(0.5)
        return read(source)

    prepare_module.read_npz = slow
    barrier.wait()
    results.put(make(folder, path)["fingerprint"])


def test_three_processes_at_once_prepare_once(tmp_path, own):
    context = multiprocessing.get_context("fork")
    barrier, results = context.Barrier(3), context.Queue()
    arguments = (tmp_path, own, barrier, results)
    all_three = [context.Process(target=_prepare_slowly, args=arguments) for _ in range(3)]
    for process in all_three:
        process.start()
    found = [results.get(timeout=60) for _ in range(4)]
    for process in all_three:
        process.join()
    assert results.empty()
    assert found.count("read") == 1
    assert len(set(found) - {"read"}) == 1
    load(tmp_path / "out/own", verify=True)
