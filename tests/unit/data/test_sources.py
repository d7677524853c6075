"""The official layouts: read back, refused where a byte is wrong, never trusted before."""

import gzip
import json
import pickle
import tarfile
from pathlib import Path

import numpy as np
import pytest
import scipy.io

from tests.unit.data.miniature import ARCHIVES, COUNTS, Miniature
from tnfdt.data import sources
from tnfdt.data.prepare import prepare
from tnfdt.data.prepared import load
from tnfdt.study.schema import UserError


class Trap:
    """A pickle that leaves a trace where it is read."""

    def __init__(self, trace):
        self.trace = trace

    def __reduce__(self):
        return (Path(self.trace).touch, ())


@pytest.fixture(params=list(COUNTS))
def miniature(request, tmp_path, monkeypatch):
    return Miniature(request.param, tmp_path, monkeypatch)


@pytest.fixture
def c10(tmp_path, monkeypatch):
    return Miniature("c10", tmp_path, monkeypatch)


@pytest.fixture
def fmnist(tmp_path, monkeypatch):
    return Miniature("fmnist", tmp_path, monkeypatch)


def refuse(miniature, message):
    """Preparing fails with one line and leaves nothing behind."""
    with pytest.raises(UserError, match=message) as caught:
        miniature.prepare()
    assert "\n" not in str(caught.value)
    assert not list((miniature.folder / "out").glob("[!.]*"))
    assert not list((miniature.folder / "out").glob("*.partial"))


def test_the_official_files_are_read_back(miniature):
    manifest = miniature.check()
    assert manifest["counts"]["train"] == np.bincount(miniature.labels[0]).tolist()
    assert all(
        value.startswith(("md5:", "sha256:")) for value in manifest["official_checksums"].values()
    )


def test_positions_in_the_official_set_give_the_images_of_a_sample(miniature, tmp_path):
    sample, positions = {}, {}
    chosen = np.random.default_rng(1).permutation(len(miniature.labels[1]))  # has every class
    for split, name in enumerate(["train", "test"]):
        positions[name] = chosen.tolist()
        sample[f"{name}_x"] = miniature.images[split][chosen].transpose(0, 2, 3, 1)
        sample[f"{name}_y"] = np.array(miniature.labels[split])[chosen]
    np.savez(tmp_path / "sample.npz", **sample)
    file = tmp_path / "sample.json"
    file.write_text(json.dumps(positions))
    by_pixels = prepare(
        miniature.name, tmp_path / "npz", data_dir=tmp_path, path=tmp_path / "sample.npz"
    )
    whole = miniature.prepare()
    by_positions = miniature.prepare(positions=file)
    assert by_positions["fingerprint"] == by_pixels["fingerprint"] != whole["fingerprint"]
    assert miniature.prepare()["fingerprint"] == whole["fingerprint"]


@pytest.mark.parametrize("content", ["{", "{}", '{"train": [9999], "test": [0]}', '{"train": "a"}'])
def test_positions_that_do_not_fit_are_refused(c10, tmp_path, content):
    (tmp_path / "sample.json").write_text(content)
    with pytest.raises(UserError, match=r"sample\.json"):
        c10.prepare(positions=tmp_path / "sample.json")
    assert not list((tmp_path / "out").glob("[!.]*"))


@pytest.mark.parametrize("name", ["c10", "c100"])
def test_cifar_in_torchvisions_folder(name, tmp_path, monkeypatch):
    cifar = Miniature(name, tmp_path, monkeypatch)
    archived = cifar.check()
    cifar.unpack_cifar()
    assert Miniature.check(cifar)["fingerprint"] == archived["fingerprint"]


def test_an_incomplete_cifar_folder_gives_way_to_the_archive(c10):
    c10.write("cifar-10-batches-py/data_batch_1", b"cut short")
    assert c10.check()["source"] == "cifar-10-python.tar.gz"


@pytest.mark.parametrize("keep", [100, -1, 0])
def test_a_truncated_file_is_refused_and_replaced(miniature, keep):
    path = miniature.folder / ARCHIVES[miniature.name]
    whole = path.read_bytes()
    path.write_bytes(whole[:keep])
    refuse(miniature, rf"{path}.*(official file has|damaged or cut short)")
    path.write_bytes(whole)
    miniature.check()


def test_a_changed_byte_is_refused(miniature):
    path = miniature.folder / ARCHIVES[miniature.name]
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    refuse(miniature, rf"{path}.*(official file has|damaged or cut short)")


def test_another_fmnist_with_a_sound_gzip_is_refused(fmnist):
    fmnist.write(ARCHIVES["fmnist"], gzip.compress(b"something else"))
    refuse(fmnist, r"train-images-idx3-ubyte.gz: SHA256 of the content is .* official file has")


def test_a_cifar_pickle_is_not_read_before_its_checksum_matched(c10):
    c10.unpack_cifar()
    trap = pickle.dumps(Trap(c10.folder / "sprung"))
    c10.write("cifar-10-batches-py/test_batch", trap)
    refuse(c10, r"test_batch: MD5 is .*, the official file has")
    assert not (c10.folder / "sprung").exists()
    pickle.loads(trap)
    assert (c10.folder / "sprung").exists()  # the trap itself works


def test_pickles_inside_an_archive_are_checked_too(c10):
    """Also where the archive's own checksum is right."""
    c10.members["cifar-10-batches-py/test_batch"] = pickle.dumps(Trap(c10.folder / "sprung"))
    c10.write_tar()
    refuse(c10, r"test_batch: MD5 is")
    assert not (c10.folder / "sprung").exists()


def member(name, kind=tarfile.REGTYPE, link="", data=b""):
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, link, len(data)
    return info, data


def test_an_archive_cannot_write_elsewhere(c10):
    evil = c10.folder / "evil"
    c10.write_tar(
        extra=[
            member("../evil", data=b"x"),
            member(str(evil), data=b"x"),
            member("cifar-10-batches-py/link", tarfile.SYMTYPE, str(c10.folder)),
            member("cifar-10-batches-py/link/evil", data=b"x"),
        ]
    )
    before = set(c10.folder.rglob("*"))
    c10.check()
    added = {path for path in set(c10.folder.rglob("*")) - before if "out" not in path.parts}
    assert not added
    assert not evil.exists()


def test_a_link_in_place_of_a_file_is_refused(c10):
    secret = c10.folder / "secret"
    secret.write_bytes(c10.members.pop("cifar-10-batches-py/test_batch"))
    c10.write_tar(extra=[member("cifar-10-batches-py/test_batch", tarfile.SYMTYPE, str(secret))])
    refuse(c10, "test_batch is not in it as a file")


@pytest.mark.parametrize("place", ["FashionMNIST/raw", ".", "debian"])
@pytest.mark.parametrize("packed", [True, False])
def test_every_place_of_fmnist(fmnist, monkeypatch, place, packed):
    """Debian compresses the files anew: their content decides."""
    monkeypatch.setattr(sources, "DEBIAN_FMNIST", fmnist.folder / "debian")
    for path in list((fmnist.folder / "FashionMNIST/raw").iterdir()):
        content = gzip.decompress(path.read_bytes())
        path.unlink()
        if packed:
            fmnist.write(f"{place}/{path.name}", gzip.compress(content, 1, mtime=5))
        else:
            fmnist.write(f"{place}/{path.stem}", content)
    assert ("Debian" in fmnist.check()["source"]) == (place == "debian")


def test_data_dir_comes_before_debian(fmnist, monkeypatch):
    monkeypatch.setattr(sources, "DEBIAN_FMNIST", fmnist.folder / "FashionMNIST/raw")
    assert fmnist.check()["source"] == "FashionMNIST/raw"


def test_svhn_calls_the_digit_zero_zero(tmp_path, monkeypatch):
    svhn = Miniature("svhn", tmp_path, monkeypatch)
    stored = scipy.io.loadmat(tmp_path / "train_32x32.mat")["y"]
    assert 10 in stored
    assert 0 not in stored
    svhn.check()


def test_a_class_missing_in_an_official_set(tmp_path, monkeypatch):
    svhn = Miniature("svhn", tmp_path, monkeypatch)
    svhn.labels[0] = [label or 1 for label in svhn.labels[0]]
    svhn.write_svhn()
    refuse(svhn, r"svhn .*class 0 has no training image")


def test_digits_are_scikit_learns(tmp_path):
    from sklearn.datasets import load_digits

    manifest = prepare("digits", tmp_path / "digits", data_dir=tmp_path)
    found = load(tmp_path / "digits")
    assert found.train_x.shape == (1297, 3, 16, 16)
    assert found.test_x.shape == (500, 3, 16, 16)
    assert found.train_x.max() == 255
    both = np.add(manifest["counts"]["train"], manifest["counts"]["test"])
    assert both.tolist() == np.bincount(load_digits().target).tolist()
    assert all(48 <= count <= 52 for count in manifest["counts"]["test"])
    # Pinned: the split and the pixels are the same on every machine and in every version.
    assert manifest["fingerprint"].startswith("94239cf429a28bd3")


def test_digits_keep_their_brightness(tmp_path):
    """Every enlarged image has the mean of its original: each pixel's weights sum to 1."""
    from sklearn.datasets import load_digits

    prepare("digits", tmp_path / "digits", data_dir=tmp_path)
    found = load(tmp_path / "digits")
    means = np.concatenate([found.train_x.numpy(), found.test_x.numpy()]).mean((1, 2, 3))
    original = load_digits().images.mean((1, 2)) * 255 / 16
    # Clamped borders double their weight, digits barely touch them.
    assert np.abs(np.sort(means) - np.sort(original)).max() < 5


def test_changed_digits_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "DIGITS_CONTENT", "0" * 64)
    with pytest.raises(UserError, match=r"digits: .* expected 0000"):
        prepare("digits", tmp_path / "digits", data_dir=tmp_path)


def test_an_unknown_dataset_is_named(tmp_path):
    with pytest.raises(UserError, match="'mnist' is not one of c10, c100, fmnist, svhn, digits"):
        prepare("mnist", tmp_path / "mnist", data_dir=tmp_path)
