"""The official datasets in miniature, written to a folder as their publishers write them."""

import gzip
import hashlib
import io
import pickle
import struct
import tarfile

import numpy as np
import scipy.io
import torchvision

from tnfdt.data import sources
from tnfdt.data.prepare import prepare
from tnfdt.data.prepared import load

RNG = np.random.default_rng(0)
CIFAR = {"c10": torchvision.datasets.CIFAR10, "c100": torchvision.datasets.CIFAR100}
COUNTS = {"c10": (30, 20), "c100": (200, 100), "fmnist": (30, 20), "svhn": (30, 20)}
ARCHIVES = {
    "c10": "cifar-10-python.tar.gz",
    "c100": "cifar-100-python.tar.gz",
    "fmnist": "FashionMNIST/raw/train-images-idx3-ubyte.gz",
    "svhn": "train_32x32.mat",
}


def md5(data):
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def labels_of(count, classes):
    return (np.arange(count) * 7 % classes).tolist()


class Miniature:
    """A small dataset in its official form; torchvision's checksums are replaced by its own."""

    def __init__(self, name, folder, monkeypatch):
        self.name, self.folder, self.patch = name, folder, monkeypatch
        self.classes = 100 if name == "c100" else 10
        size = 28 if name == "fmnist" else 32
        channels = 1 if name == "fmnist" else 3
        self.images, self.labels = [], []
        for count in COUNTS[name]:
            self.images.append(RNG.integers(0, 256, (count, channels, size, size), dtype=np.uint8))
            self.labels.append(labels_of(count, self.classes))
        monkeypatch.setattr(sources, "DEBIAN_FMNIST", folder / "no Debian here")
        getattr(self, "write_" + {"c10": "cifar", "c100": "cifar"}.get(name, name))()

    def write(self, path, data):
        path = self.folder / path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return md5(data)

    def write_cifar(self, archive=True):
        cls = CIFAR[self.name]
        files = self.cifar_pickles(cls)
        self.members = {f"{cls.base_folder}/{file}": data for file, data in files.items()}
        sums = {file: md5(data) for file, data in files.items()}
        self.patch.setattr(cls, "train_list", [[f, sums[f]] for f, _ in cls.train_list])
        self.patch.setattr(cls, "test_list", [[f, sums[f]] for f, _ in cls.test_list])
        self.patch.setattr(cls, "meta", cls.meta | {"md5": sums[cls.meta["filename"]]})
        self.write_tar()

    def cifar_pickles(self, cls):
        key = "labels" if self.name == "c10" else "fine_labels"
        files = {}
        for split, listed in enumerate([cls.train_list, cls.test_list]):
            rows = np.array_split(self.images[split].reshape(-1, 3072), len(listed))
            parts = np.array_split(self.labels[split], len(listed))
            for (file, _), data, labels in zip(listed, rows, parts, strict=True):
                files[file] = pickle.dumps({"data": data, key: labels.tolist()}, protocol=2)
        names = {cls.meta["key"]: [str(label) for label in range(self.classes)]}
        return files | {cls.meta["filename"]: pickle.dumps(names, protocol=2)}

    def write_tar(self, extra=()):
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
            for file, data in self.members.items():
                info = tarfile.TarInfo(file)
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
            for info, data in extra:
                tar.addfile(info, io.BytesIO(data))
        cls = CIFAR[self.name]
        self.patch.setattr(cls, "tgz_md5", self.write(cls.filename, buffer.getvalue()))

    def unpack_cifar(self):
        (self.folder / ARCHIVES[self.name]).unlink()
        for file, data in self.members.items():
            self.write(file, data)

    def write_fmnist(self, mtime=1):
        content, resources = {}, []
        for split, prefix in enumerate(["train", "t10k"]):
            images, labels = self.images[split], np.array(self.labels[split], np.uint8)
            for kind, array in (("images-idx3", images[:, 0]), ("labels-idx1", labels)):
                header = struct.pack(f">I{array.ndim}I", 0x800 + array.ndim, *array.shape)
                content[f"{prefix}-{kind}-ubyte"] = header + array.tobytes()
        for file, data in content.items():
            packed = gzip.compress(data, mtime=mtime)
            resources.append((f"{file}.gz", self.write(f"FashionMNIST/raw/{file}.gz", packed)))
        self.patch.setattr(torchvision.datasets.FashionMNIST, "resources", resources)
        sums = {file: hashlib.sha256(data).hexdigest() for file, data in content.items()}
        self.patch.setattr(sources, "FMNIST_CONTENT", sums)

    def write_svhn(self):
        split_list = {}
        for split, images, labels in zip(["train", "test"], self.images, self.labels, strict=True):
            ten = np.where(np.array(labels) == 0, 10, labels)[:, None].astype(np.uint8)
            buffer = io.BytesIO()
            scipy.io.savemat(buffer, {"X": images.transpose(2, 3, 1, 0), "y": ten})
            file = f"{split}_32x32.mat"
            url = f"http://ufldl.stanford.edu/housenumbers/{file}"
            split_list[split] = [url, file, self.write(file, buffer.getvalue())]
        self.patch.setattr(torchvision.datasets.SVHN, "split_list", split_list)

    def prepare(self, **options):
        out = self.folder / "out" / self.name
        return prepare(self.name, out, data_dir=self.folder, download=False, **options)

    def check(self, **options):
        """Prepare it and compare every pixel and label."""
        manifest = self.prepare(**options)
        found = load(self.folder / "out" / self.name, verify=True)
        for split, x, y in ((0, found.train_x, found.train_y), (1, found.test_x, found.test_y)):
            expected = np.broadcast_to(self.images[split], (len(x), 3, *x.shape[2:]))
            assert (x.numpy() == expected).all()
            assert y.tolist() == self.labels[split]
        assert found.num_classes == self.classes
        return manifest
