"""A user's .npz: what is taken, and one line for each thing that is wrong with it."""

import zipfile

import numpy as np
import pytest

from tnfdt.data.npz import read_npz
from tnfdt.study.schema import UserError

RNG = np.random.default_rng(0)


def content(**changes):
    arrays = {
        "train_x": RNG.integers(0, 256, (6, 5, 4, 3), dtype=np.uint8),
        "train_y": np.array([0, 1, 2, 0, 1, 2]),
        "test_x": RNG.integers(0, 256, (3, 5, 4, 3), dtype=np.uint8),
        "test_y": np.array([0, 1, 2], np.uint8),
    }
    return {key: value for key, value in (arrays | changes).items() if value is not None}


def save(folder, **changes):
    np.savez_compressed(folder / "own.npz", **content(**changes))
    return folder / "own.npz"


def test_images_and_labels_are_read(tmp_path):
    own = content()
    arrays = read_npz(save(tmp_path, **own))
    assert arrays.train_x.shape == (6, 3, 5, 4)
    assert (arrays.train_x.transpose(0, 2, 3, 1) == own["train_x"]).all()
    assert arrays.test_y.tolist() == [0, 1, 2]
    assert arrays.test_y.dtype == np.int64


@pytest.mark.parametrize("tail", [(), (1,)])
def test_grey_images_are_taken(tmp_path, tail):
    grey = {"train_x": np.ones((6, 5, 4, *tail), np.uint8), "test_x": np.ones((3, 5, 4), np.uint8)}
    assert read_npz(save(tmp_path, **grey)).train_x.shape == (6, 3, 5, 4)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train_x": np.zeros((6, 5, 4, 3), np.float32)}, "train_x is float32, expected uint8"),
        ({"test_x": np.zeros((3, 5, 4, 3), np.int64)}, "test_x is int64, expected uint8"),
        ({"train_y": np.array(list("catdog"))}, "train_y is <U1, expected integer"),
        ({"train_y": np.zeros(6)}, "train_y is float64, expected integer"),
        ({"train_y": np.zeros(6, bool)}, "train_y is bool, expected integer"),
        ({"test_y": np.zeros((3, 1), int)}, r"test_y is \[3, 1\], expected \[N\]"),
        ({"train_y": np.array([0, 1, 2])}, "train_x has 6 images, train_y 3 labels"),
        ({"test_x": np.zeros((3, 6, 4, 3), np.uint8)}, "train_x is 5x4, test_x 6x4"),
        ({"train_x": np.zeros((6, 3, 5, 4), np.uint8)}, r"expected \[N, H, W, 3\].*transpose"),
        ({"train_x": np.zeros((6, 60), np.uint8)}, r"train_x is \[6, 60\], expected"),
        ({"test_x": np.zeros((0, 5, 4, 3), np.uint8), "test_y": np.zeros(0, int)}, "is empty"),
        ({"test_x": None}, "test_x is missing"),
        ({"train_y": np.array([{}] * 6, object)}, "not a readable .npz.*allow_pickle"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(tmp_path, changes, message):
    with pytest.raises(UserError, match=message) as caught:
        read_npz(save(tmp_path, **changes))
    assert str(tmp_path / "own.npz") in str(caught.value)
    assert "\n" not in str(caught.value)


def test_members_that_are_no_arrays(tmp_path):
    path = tmp_path / "own.npz"
    with zipfile.ZipFile(path, "w") as archive:
        for key in content():
            archive.writestr(key, "1,2,3")
    with pytest.raises(UserError, match=r"own\.npz is not a readable .npz \(a member is no .npy"):
        read_npz(path)


@pytest.mark.parametrize("keep", [0, 1, 40, 400, -1, -30])
def test_a_truncated_file(tmp_path, keep):
    path = save(tmp_path)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(UserError, match=r"not a readable .npz"):
        read_npz(path)


def test_flipped_bytes_are_noticed(tmp_path):
    path = save(tmp_path)
    data = bytearray(path.read_bytes())
    data[150] ^= 255  # in the compressed pixels: zip's CRC sees it
    path.write_bytes(data)
    with pytest.raises(UserError, match=r"not a readable .npz"):
        read_npz(path)


@pytest.mark.parametrize("kind", ["missing", "folder", "npy", "text"])
def test_other_things_than_an_npz(tmp_path, kind):
    path = tmp_path / "own.npz"
    if kind == "folder":
        path.mkdir()
    if kind == "npy":
        with path.open("wb") as file:
            np.save(file, np.zeros(3))
    if kind == "text":
        path.write_text("train_x: 1\n")
    with pytest.raises(UserError, match=r"own.npz (does not exist|is not a readable)"):
        read_npz(path)


def test_nothing_is_unpickled(tmp_path):
    class Trap:
        def __reduce__(self):
            return (tmp_path.joinpath("sprung").touch, ())

    with pytest.raises(UserError, match=r"not a readable .npz"):
        read_npz(save(tmp_path, train_y=np.array([Trap()] * 6, object)))
    assert not (tmp_path / "sprung").exists()
