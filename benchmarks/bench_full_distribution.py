"""Batches of full distribution training against Alg. 2 as a loop over PIL images.

B = 100 samples of up to C = 100 classes, of a set like CIFAR-100 with random pixels. The loop
picks, shifts and flips every image with torchvision's transforms, as a training would with a
`Dataset`; both draw the amounts uniformly from 1..C. "after" augments the blend instead, less
work than the loop does: that row says what the cheaper reading of the paper costs.
"""

from __future__ import annotations

import random
import time
from functools import partial

import torch
from PIL import Image
from torch import Tensor
from torchvision import transforms  # type: ignore[import-untyped]

from benchmarks.ratios import Row, interleaved
from tnfdt.core.augment import ShiftFlip
from tnfdt.core.full_distribution import FullDistribution

BATCH, CLASSES, IMAGES = 100, 100, 50_000


def main() -> list[Row]:
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    shape = (IMAGES, 3, 32, 32)
    images = torch.randint(256, shape, dtype=torch.uint8, generator=generator)
    labels = torch.arange(IMAGES) % CLASSES
    loop = PilLoop(images, labels)
    rows = []
    for when, bound in (("each", 60), ("after", 240)):
        source = FullDistribution(
            images,
            labels,
            CLASSES,
            augment=ShiftFlip(4, True),
            generator=generator,
            augment_when=when,  # type: ignore[arg-type]
        )
        speedup = 1 / interleaved(
            loop.batch, partial(source.batch, BATCH), repeats=11, clock=time.process_time
        )
        rows.append(
            Row.at_least(f"FullDistribution batch, {when}: times the PIL loop", speedup, bound)
        )
    return rows


class PilLoop:
    """Alg. 2, one image after another."""

    def __init__(self, images: Tensor, labels: Tensor) -> None:
        self.images, self.labels = images.permute(0, 2, 3, 1).numpy(), labels.tolist()
        self.random = random.Random(0)
        self.transform = transforms.Compose(
            [
                transforms.RandomCrop(32, padding=4),
                transforms.RandomHorizontalFlip(),
                transforms.PILToTensor(),
            ]
        )

    def batch(self) -> tuple[Tensor, Tensor]:
        samples = [self.sample() for _ in range(BATCH)]
        images, targets = zip(*samples, strict=True)
        return torch.stack(images), torch.stack(targets)

    def sample(self) -> tuple[Tensor, Tensor]:
        amount = self.random.randint(1, CLASSES)
        factors = [1 / i for i in range(1, amount + 1)]
        total, chosen = sum(factors), set[int]()
        image, truth = torch.zeros(3, 32, 32), torch.zeros(CLASSES)
        for factor in factors:
            j = self.draw(chosen)
            chosen.add(self.labels[j])
            truth[self.labels[j]] = factor / total
            image += self.transform(Image.fromarray(self.images[j])) * (factor / total)
        return image, truth

    def draw(self, chosen: set[int]) -> int:
        """An image whose class is not in the blend yet."""
        while True:
            j = self.random.randrange(IMAGES)
            if self.labels[j] not in chosen:
                return j
