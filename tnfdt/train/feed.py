"""The training feed: the whole set lies on the device, is shuffled and augmented there.

No workers, no copies between processes: a batch is one gather. Order and augmentation are
functions of (seed, epoch, step) alone, so a run can go on at any step with the same batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from tnfdt.core.seeding import generator

Augmentation = Callable[[Tensor, torch.Generator], Tensor]


def steps_per_epoch(count: int, batch_size: int) -> int:
    """Number of batches of an epoch over `count` images; the last one may be smaller."""
    return -(-count // batch_size)


def epoch_batches(
    images: Tensor,
    labels: Tensor,
    *,
    batch_size: int,
    seed: int,
    epoch: int,
    augment: Augmentation | None = None,
    start: int = 0,
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield (images [B, C, H, W], labels [B]) of one epoch, every image once.

    `images` [N, C, H, W] uint8 and `labels` [N] lie on one device, where the batches stay. The
    batches before `start` are skipped without being computed.
    """
    order = torch.randperm(len(images), generator=generator(seed, f"order/{epoch}"))
    order = order.to(images.device)
    for step in range(start, steps_per_epoch(len(images), batch_size)):
        chosen = order[step * batch_size : (step + 1) * batch_size]
        batch = images.index_select(0, chosen)
        if augment is not None:
            batch = augment(batch, generator(seed, f"augment/{epoch}/{step}"))
        yield batch, labels.index_select(0, chosen)
