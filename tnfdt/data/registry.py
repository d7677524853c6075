"""The datasets by short name: the one list of them.

Importing this loads neither torch nor torchvision, so that Snakemake can read it for every job.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

from tnfdt.data import sources
from tnfdt.data.official import Official
from tnfdt.data.sources import Found


class Images(NamedTuple):
    """How many images a dataset has, and what they look like to a network."""

    train: int
    test: int
    height: int
    width: int
    classes: int

    @property
    def bytes(self) -> int:
        return 3 * self.height * self.width * (self.train + self.test)


@dataclass(frozen=True, kw_only=True)
class DatasetSource:
    """One dataset of the registry."""

    title: str
    images: Images
    read: Callable[[Path, Path], Found | None]
    files: Callable[[], tuple[Official, ...]] = tuple  # what can be downloaded
    alternative: str = ""  # another way to get the files, for the message


DATASETS: dict[str, DatasetSource] = {
    "c10": DatasetSource(
        title="CIFAR-10",
        images=Images(50_000, 10_000, 32, 32, 10),
        read=partial(sources.read_cifar, "CIFAR10"),
        files=partial(sources.cifar_files, "CIFAR10"),
    ),
    "c100": DatasetSource(
        title="CIFAR-100",
        images=Images(50_000, 10_000, 32, 32, 100),
        read=partial(sources.read_cifar, "CIFAR100"),
        files=partial(sources.cifar_files, "CIFAR100"),
    ),
    "fmnist": DatasetSource(
        title="Fashion-MNIST",
        images=Images(60_000, 10_000, 28, 28, 10),
        read=sources.read_fmnist,
        files=sources.fmnist_files,
        alternative="install Debian's package: apt install dataset-fashion-mnist",
    ),
    "svhn": DatasetSource(
        title="SVHN",
        images=Images(73_257, 26_032, 32, 32, 10),
        read=sources.read_svhn,
        files=sources.svhn_files,
    ),
    "digits": DatasetSource(
        title="digits",
        images=Images(1_297, 500, 16, 16, 10),
        read=sources.read_digits,
    ),
}
