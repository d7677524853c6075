"""Opening a prepared copy: mapped, checked, never written to."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch

from tnfdt.data.prepare import prepare
from tnfdt.data.prepared import load
from tnfdt.study.schema import UserError


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    splits = {"train": 30, "test": 10}
    arrays = {f"{key}_x": rng.integers(0, 256, (n, 8, 8, 3), np.uint8) for key, n in splits.items()}
    arrays |= {f"{key}_y": np.arange(n) % 5 for key, n in splits.items()}
    np.savez(tmp_path / "own.npz", **arrays)
    prepare("own", tmp_path / "own", data_dir=tmp_path, path=tmp_path / "own.npz")
    return tmp_path / "own"


def edit(folder, **changes):
    path = folder / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_tensors_as_promised(folder):
    found = load(folder)
    assert found.train_x.shape == (30, 3, 8, 8)
    assert found.train_x.dtype == found.test_x.dtype == torch.uint8
    assert found.train_y.dtype == found.test_y.dtype == torch.int64
    assert found.num_classes == 5
    assert len(found.fingerprint) == 64


@pytest.mark.filterwarnings("error")
def test_writing_to_a_tensor_does_not_reach_the_file(folder):
    found = load(folder)
    found.train_x.zero_()
    assert load(folder, verify=True).train_x.any()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: (f / "manifest.json").unlink(), r"manifest.json does not exist"),
        (lambda f: (f / "manifest.json").write_text("[]"), "not a manifest of this version"),
        (lambda f: (f / "manifest.json").write_text("{"), "not a valid JSON"),
        (lambda f: edit(f, schema=0), "not a manifest of this version"),
        (lambda f: edit(f, arrays={}), r"train_x.npy is not the array of its manifest"),
        (lambda f: (f / "test_x.npy").unlink(), r"test_x.npy is unreadable"),
        (lambda f: os.truncate(f / "train_x.npy", 1000), r"train_x.npy is unreadable"),
        (lambda f: os.truncate(f / "train_x.npy", 10**5), r"train_x.npy is not the array"),
        (lambda f: (f / "test_y.npy").write_bytes(b""), r"test_y.npy is unreadable"),
        (lambda f: np.save(f / "train_y.npy", np.zeros(30)), r"train_y.npy is not the array"),
        (lambda f: np.save(f / "train_y.npy", np.arange(29)), r"train_y.npy is not the array"),
        (lambda f: (f / "test_y.npy").write_bytes(b"PK\x05\x06" + bytes(18)), "unreadable"),
    ],
)
def test_damage_is_noticed_at_once(folder, damage, message):
    damage(folder)
    with pytest.raises(UserError, match=message) as caught:
        load(folder)
    assert "\n" not in str(caught.value)


def test_a_changed_pixel_is_noticed_on_verify(folder):
    data = bytearray((folder / "train_x.npy").read_bytes())
    data[-1] ^= 1
    (folder / "train_x.npy").write_bytes(data)
    load(folder)
    with pytest.raises(UserError, match=r"train_x.npy has changed since it was prepared"):
        load(folder, verify=True)


def test_a_forged_fingerprint_is_noticed_on_verify(folder):
    edit(folder, fingerprint="0" * 64)
    with pytest.raises(UserError, match="the fingerprint is wrong"):
        load(folder, verify=True)


def test_the_import_is_cheap():
    code = (
        "import sys, tnfdt.data; "
        "print([m for m in ('torchvision', 'sklearn', 'scipy', 'pandas') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
