"""Batches that can be cut anywhere: what is kept, what is refused, and that bytes repeat."""

import numpy as np
import pytest
import torch

from tnfdt.attack import batches as partial
from tnfdt.attack.batches import Partial, in_batches
from tnfdt.files.atomic import read_arrays, sha256_file, write_npz
from tnfdt.study.schema import UserError

IMAGES = torch.arange(10.0)


def double(images, labels, first):
    return {"twice": 2 * images.numpy(), "grid": np.stack([images, labels + first])}


def run(path, key="a", attack=double, count=10):
    done = Partial(path, key)
    in_batches(attack, lambda part: (IMAGES[part], IMAGES[part]), count, 4, done, None)
    return done


def test_all_images_are_through_in_batches_of_the_given_size(tmp_path):
    sizes = []
    done = run(tmp_path / "p", attack=lambda *a: sizes.append(len(a[0])) or double(*a))
    assert sizes == [4, 4, 2]
    np.testing.assert_array_equal(done.arrays["twice"], 2 * IMAGES)
    assert done.arrays["grid"].shape == (2, 10)
    assert not (tmp_path / "p").exists()  # nothing was worth saving in this short time


def test_no_image_beyond_the_count_is_taken(tmp_path):
    seen = []

    def counted(images, labels, first):
        seen.append(len(images))
        return double(images, labels, first)

    done = run(tmp_path / "part", attack=counted, count=6)
    assert (seen, done.done) == ([4, 2], 6)


@pytest.mark.parametrize("cut", [0, 4, 8])
def test_a_cut_run_goes_on_at_the_batch_it_lost(tmp_path, monkeypatch, cut):
    monkeypatch.setattr(partial, "SAVE_SECONDS", 0)

    def dies(images, labels, first):
        if first == cut:
            raise KeyboardInterrupt
        return double(images, labels, first)

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "p", attack=dies)
    seen = []
    done = run(tmp_path / "p", attack=lambda *a: seen.append(a[2]) or double(*a))
    assert seen == list(range(cut, 10, 4))
    whole = run(tmp_path / "q").arrays
    for name in whole:
        np.testing.assert_array_equal(done.arrays[name], whole[name])


def test_a_file_of_another_attack_is_not_used(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(partial, "SAVE_SECONDS", 0)
    run(tmp_path / "p", key="a")
    seen = []
    run(tmp_path / "p", key="b", attack=lambda *a: seen.append(a[2]) or double(*a))
    assert seen == [0, 4, 8]
    assert capsys.readouterr().err.endswith("belongs to another attack; the attack starts over\n")


@pytest.mark.parametrize("keep", [0, 1, 100, -30])
def test_a_torn_file_is_not_used(tmp_path, monkeypatch, capsys, keep):
    monkeypatch.setattr(partial, "SAVE_SECONDS", 0)
    run(tmp_path / "p")
    (tmp_path / "p").write_bytes((tmp_path / "p").read_bytes()[:keep])
    np.testing.assert_array_equal(run(tmp_path / "p").arrays["twice"], 2 * IMAGES)
    assert "cannot be read" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["loss", "gradient_norm"])
def test_numbers_that_are_not_finite_stop_the_attack(tmp_path, name):
    with pytest.raises(UserError, match="not finite; did its training diverge"):
        run(tmp_path / "p", attack=lambda images, *_: {name: np.full(len(images), np.nan)})


def test_running_out_of_gpu_memory_is_told_in_one_line(tmp_path):
    def full(*_):
        raise torch.OutOfMemoryError("CUDA out of memory")

    with pytest.raises(UserError, match=r"set a smaller attack\.batch_size"):
        run(tmp_path / "p", attack=full)


def test_the_same_arrays_give_the_same_bytes(tmp_path, monkeypatch):
    arrays = {"a": np.arange(5), "b": np.eye(3, dtype=bool)}
    write_npz(tmp_path / "1.npz", arrays)
    monkeypatch.setattr("time.localtime", lambda *_: (2030, 1, 1, 0, 0, 0, 0, 0, 0))
    write_npz(tmp_path / "2.npz", arrays)
    assert sha256_file(tmp_path / "1.npz") == sha256_file(tmp_path / "2.npz")
    back = read_arrays(tmp_path / "1.npz")
    assert back.keys() == arrays.keys()
    assert all((back[name] == arrays[name]).all() for name in arrays)


def test_an_archive_that_is_none_is_refused_in_one_line(tmp_path):
    (tmp_path / "x.npz").write_bytes(b"PK\x03\x04 not really")
    with pytest.raises(UserError, match=r"x\.npz cannot be read") as error:
        read_arrays(tmp_path / "x.npz")
    assert "\n" not in str(error.value)
    with pytest.raises(UserError, match="does not exist"):
        read_arrays(tmp_path / "y.npz")
