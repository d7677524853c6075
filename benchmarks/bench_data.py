"""The training feed: against torchvision's transforms in a DataLoader, and within a step."""

from __future__ import annotations

import itertools
import statistics
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from benchmarks.ratios import Row, interleaved
from tnfdt.core.augment import ShiftFlip
from tnfdt.core.losses import multi_class_log_loss
from tnfdt.data.prepare import prepare
from tnfdt.data.prepared import ImageSet, load
from tnfdt.models import create_model
from tnfdt.train.batch_sources import SingleImages
from tnfdt.train.feed import Batch, batches

BATCH = 100
IMAGES = 5_000  # an epoch of these takes a DataLoader about a second
PAGE = 4096  # bytes
AUGMENT = ShiftFlip(shift=4, flip=True)


class Transformed(Dataset[Any]):
    """Images through torchvision's transforms one by one, as its CIFAR10 does it."""

    def __init__(self, images: Tensor) -> None:
        from torchvision import transforms  # type: ignore[import-untyped]

        self.pixels = images.permute(0, 2, 3, 1).contiguous().numpy()
        steps = [transforms.RandomCrop(32, padding=4), transforms.RandomHorizontalFlip()]
        self.transform = transforms.Compose([*steps, transforms.PILToTensor()])

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.transform(Image.fromarray(self.pixels[index])), 0


def main() -> list[Row]:
    images = torch.randint(256, (IMAGES, 3, 32, 32), dtype=torch.uint8)
    labels = torch.arange(IMAGES) % 10
    source = _source(images, labels)
    return [_against_dataloader(images, source), _within_a_step(source), _seconds_to_load()]


def _against_dataloader(images: Tensor, source: SingleImages) -> Row:
    """Images per second in one thread over those of 2 workers that are up and warm."""
    loader = DataLoader(
        Transformed(images), BATCH, shuffle=True, num_workers=2, persistent_workers=True
    )
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    ratio = interleaved(lambda: _exhaust(loader), lambda: _exhaust(_feed(source)), 7)
    torch.set_num_threads(threads)
    return Row.at_least("augmented images/s: feed, 1 thread / DataLoader, 2 workers", 1 / ratio, 10)


def _within_a_step(source: SingleImages) -> Row:
    """Seconds for one batch over seconds for the ResNet-34 step that consumes it."""
    model, few = create_model("resnet34", 10), 20
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batch = next(iter(_feed(source)))

    def step() -> None:
        loss = multi_class_log_loss(model(batch.images), batch.classes)
        optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        optimizer.step()

    ratio = interleaved(step, lambda: _exhaust(itertools.islice(_feed(source), few)), 3)
    return Row.at_most("feeding a batch / training step of ResNet-34", ratio / few, 0.03)


def _seconds_to_load() -> Row:
    """Open a set of CIFAR's size and touch every page of it, median of five."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sizes = {"train": 50_000, "test": 10_000}
        arrays: dict[str, Any] = {}
        for split, count in sizes.items():
            arrays[f"{split}_x"] = np.zeros((count, 32, 32, 3), np.uint8)
            arrays[f"{split}_y"] = np.arange(count) % 10
        np.savez(folder / "own.npz", **arrays)
        prepare("own", folder / "own", data_dir=folder, path=folder / "own.npz")
        seconds = []
        for _ in range(5):
            start = time.perf_counter()
            data = load(folder / "own")
            for pixels in (data.train_x, data.test_x):
                pixels.view(-1)[::PAGE].sum()
            seconds.append(time.perf_counter() - start)
    median = statistics.median(seconds)
    return Row("seconds to load a prepared CIFAR-sized set", median, "< 1", median < 1)


def _source(images: Tensor, labels: Tensor) -> SingleImages:
    """As a training makes it, once, before its first step."""
    data = ImageSet(
        train_x=images,
        train_y=labels,
        test_x=images[:0],
        test_y=labels[:0],
        num_classes=10,
        fingerprint="",
    )
    return SingleImages(data, augment=AUGMENT, seed=0, batch_size=BATCH)


def _feed(source: SingleImages) -> Iterator[Batch]:
    return batches(source, 0, 0, torch.device("cpu"))


def _exhaust(batches: Iterable[object]) -> None:
    for _ in batches:
        pass
