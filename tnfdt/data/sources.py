"""The official files of each dataset: where they lie and how they are read.

A `read_…(data_dir, work)` looks for the files, verifies their checksums and returns the
arrays, or None where nothing is found; `work` is an empty folder for what is unpacked.
torchvision and scikit-learn are imported only when a set is read.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tnfdt.data import official
from tnfdt.data.arrays import Array, Arrays, channels_first, stratified
from tnfdt.data.official import Official
from tnfdt.study.schema import UserError

DEBIAN_FMNIST = Path("/usr/share/datasets/fashion-mnist")  # from package dataset-fashion-mnist

# SHA-256 of the decompressed files: equal for Zalando's archives, whose MD5 torchvision has, and
# for Debian's, which are compressed again.
FMNIST_CONTENT = {
    "train-images-idx3-ubyte": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
    "train-labels-idx1-ubyte": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
    "t10k-images-idx3-ubyte": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
    "t10k-labels-idx1-ubyte": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
}
DIGITS_CONTENT = "87ff0c9e40dc7e2c0e34e7257799c2e3f3aec1a016363bb11cad869ec428a826"
DIGITS_TEST = 500  # images of the test split, stratified


class Found(NamedTuple):
    """A dataset as read from its official files."""

    arrays: Arrays
    source: str  # for people: which of the possible places it was
    checksums: dict[str, str]  # of the official files, "md5:…" or "sha256:…", all verified


def _cifar(name: str) -> Any:
    import torchvision  # type: ignore[import-untyped]

    return getattr(torchvision.datasets, name)


def cifar_files(name: str) -> tuple[Official, ...]:
    cls = _cifar(name)
    return (Official(cls.filename, cls.tgz_md5, cls.url),)


def read_cifar(name: str, data_dir: Path, work: Path) -> Found | None:
    """CIFAR-10 or -100 from its unpacked folder, else from its archive."""
    cls = _cifar(name)
    listed = [*cls.train_list, *cls.test_list, (cls.meta["filename"], cls.meta["md5"])]
    md5s = {f"{cls.base_folder}/{file}": md5 for file, md5 in listed}
    root, source, archive = data_dir, cls.base_folder, data_dir / cls.filename
    if not official.have_all(root, md5s):
        if not archive.is_file():
            return None
        official.check_file(archive, "md5", cls.tgz_md5)
        official.unpack_tar(archive, md5s, work)
        root, source = work, cls.filename
    official.check_files(root, md5s)  # before torchvision unpickles them
    splits = [cls(root, train=train) for train in (True, False)]
    pairs = [(channels_first(split.data), _labels(split.targets)) for split in splits]
    return Found(Arrays(*pairs[0], *pairs[1]), source, _prefixed("md5", md5s))


def fmnist_files() -> tuple[Official, ...]:
    from torchvision.datasets import FashionMNIST  # type: ignore[import-untyped]

    mirror = FashionMNIST.mirrors[0]
    return tuple(
        Official(f"FashionMNIST/raw/{file}", md5, mirror + file)
        for file, md5 in FashionMNIST.resources
    )


def read_fmnist(data_dir: Path, work: Path) -> Found | None:
    """Fashion-MNIST from data_dir, else from Debian's package; 28x28, grey in three channels."""
    from torchvision.datasets import mnist

    places = {
        "FashionMNIST/raw": data_dir / "FashionMNIST/raw",
        "data_dir": data_dir,
        "Debian's dataset-fashion-mnist": DEBIAN_FMNIST,
    }
    source = next((place for place, folder in places.items() if _has_fmnist(folder)), None)
    if source is None:
        return None
    files = {name: _fmnist_content(places[source] / name, work) for name in FMNIST_CONTENT}
    arrays: list[Array] = []
    for split in ("train", "t10k"):
        images = mnist.read_image_file(files[f"{split}-images-idx3-ubyte"])
        labels = mnist.read_label_file(files[f"{split}-labels-idx1-ubyte"])
        arrays += [channels_first(images.numpy()), _labels(labels)]
    return Found(Arrays(*arrays), source, _prefixed("sha256", FMNIST_CONTENT))


def _has_fmnist(folder: Path) -> bool:
    return all(_packed_or_not(folder / name).is_file() for name in FMNIST_CONTENT)


def _packed_or_not(path: Path) -> Path:
    """The .gz where there is one: an unpacked file beside it may be an interrupted unpacking."""
    packed = path.with_name(f"{path.name}.gz")
    return packed if packed.is_file() else path


def _fmnist_content(path: Path, work: Path) -> Path:
    """The verified file behind `path`, decompressed into `work` where only the .gz is there."""
    packed, content = _packed_or_not(path), path
    if packed != path:
        content = work / path.name
        official.unpack_gzip(packed, content)
    official.check_file(content, "sha256", FMNIST_CONTENT[path.name], shown=packed)
    return content


def svhn_files() -> tuple[Official, ...]:
    from torchvision.datasets import SVHN

    listed = [SVHN.split_list[split] for split in ("train", "test")]
    return tuple(Official(file, md5, url) for url, file, md5 in listed)


def read_svhn(data_dir: Path, work: Path) -> Found | None:
    """SVHN's cropped digits, train and test without the extra set; label 10 is the digit 0."""
    from torchvision.datasets import SVHN

    md5s = {file.path: file.md5 for file in svhn_files()}
    if not official.have_all(data_dir, md5s):
        return None
    official.check_files(data_dir, md5s)
    splits = [SVHN(data_dir, split=split) for split in ("train", "test")]
    pairs = [(np.ascontiguousarray(split.data), _labels(split.labels)) for split in splits]
    return Found(Arrays(*pairs[0], *pairs[1]), ", ".join(md5s), _prefixed("md5", md5s))


def read_digits(data_dir: Path, work: Path) -> Found:
    """scikit-learn's digits, 8x8 with values 0 to 16, as grey 16x16 with values 0 to 255."""
    import torch
    from sklearn.datasets import load_digits  # type: ignore[import-untyped]

    digits = load_digits()
    images, labels = digits.images.astype(np.uint8), _labels(digits.target)
    content = hashlib.sha256(images.tobytes() + labels.astype(np.uint8).tobytes()).hexdigest()
    if content != DIGITS_CONTENT:
        raise UserError(
            f"digits: scikit-learn's digits have SHA-256 {content}, expected {DIGITS_CONTENT}; "
            "install scikit-learn again"
        )
    # Exact: bilinear weights at scale 2 are sixteenths, so floats hold every value.
    small = torch.from_numpy(images.astype(np.float64))[:, None]
    large = torch.nn.functional.interpolate(small, scale_factor=2, mode="bilinear")
    pixels = channels_first((large[:, 0] * (255 / 16)).round().to(torch.uint8).numpy())
    test = np.isin(np.arange(len(labels)), stratified(labels, DIGITS_TEST, "digits/test"))
    arrays = Arrays(pixels[~test], labels[~test], pixels[test], labels[test])
    return Found(arrays, "scikit-learn", {"load_digits": f"sha256:{content}"})


def _labels(labels: Any) -> Array:
    return np.asarray(labels, dtype=np.int64)


def _prefixed(algorithm: str, checksums: dict[str, str]) -> dict[str, str]:
    return {name: f"{algorithm}:{value}" for name, value in checksums.items()}
