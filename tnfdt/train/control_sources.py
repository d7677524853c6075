"""The controls as sources of batches: each changes what another source gives.

As everywhere, all that chance decides is drawn on the CPU and crosses to the device in the
step's one copy; the batch is made there without a look at any value.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tnfdt.core.controls import (
    draw_mix,
    matched_smoothing,
    mix_images,
    mix_targets,
    smooth_targets,
)
from tnfdt.core.seeding import derive, generator
from tnfdt.data.prepared import ImageSet
from tnfdt.train.feed import Batch, Draws, Source, batch_bounds

Config = dict[str, Any]


def with_controls(
    source: Source, config: Config, data: ImageSet, layout: torch.memory_format
) -> Source:
    """`source` with the controls that the config of a training asks for."""
    seed, shape = config["seed"], data.train_x.shape
    if smoothing := smoothing_of(config, data.num_classes):
        source = Smoothed(source, smoothing, data.num_classes)
    if "mix" in config:
        source = Mixed(source, config["mix"], data.num_classes, (shape[2], shape[3]), seed, layout)
    if "adversarial" in config:
        sizes = [
            last - first for first, last in batch_bounds(shape[0], config["training"]["batch_size"])
        ]
        source = Attacked(source, [(size, *shape[1:]) for size in sizes], seed, layout)
    return source


def smoothing_of(config: Config, num_classes: int) -> float | None:
    """The label smoothing of a training as a number, `matched` solved for its classes."""
    chosen = config.get("label_smoothing")
    if isinstance(chosen, dict):
        return matched_smoothing(num_classes, **chosen["matched"])
    return chosen


def solved(config: Config, num_classes: int) -> Config:
    """What a record says beside the config: the classes, and what `matched` came to."""
    smoothing = smoothing_of(config, num_classes)
    return {"num_classes": num_classes} | ({"smoothing": smoothing} if smoothing else {})


def soft_table(targets: Tensor) -> Tensor:
    """As `loss_table`, [3, B, C], but with the soft cross-entropy itself as the loss."""
    return targets.expand(3, *targets.shape).contiguous()


class Smoothed:
    """Single images with smoothed labels."""

    def __init__(self, source: Source, smoothing: float, num_classes: int) -> None:
        self._source, self._smoothing, self._num_classes = source, smoothing, num_classes
        self.steps = source.steps

    def draw(self, epoch: int, step: int) -> Draws:
        """The source's draws, of which the classes [B] are the last, then the table."""
        draws = self._source.draw(epoch, step)
        targets = smooth_targets(draws[-1], self._num_classes, self._smoothing)
        return (*draws, soft_table(targets))

    def batch(self, draws: Draws) -> Batch:
        return self._source.batch(draws[:-1])._replace(table=draws[-1])


class Mixed:
    """Single images mixed in pairs within a batch, by mixup or CutMix."""

    def __init__(
        self,
        source: Source,
        mix: Config,
        num_classes: int,
        shape: tuple[int, int],
        seed: int,
        layout: torch.memory_format,
    ) -> None:
        self._source, self._mix, self._num_classes = source, mix, num_classes
        self._shape, self._seed, self._layout = shape, seed, layout
        self.steps = source.steps

    def draw(self, epoch: int, step: int) -> Draws:
        """The source's draws with the classes [B] last; partners, shares of pixels, the table."""
        draws = self._source.draw(epoch, step)
        chance = np.random.default_rng(derive(self._seed, f"mix/{epoch}/{step}"))
        kind, alpha = self._mix["kind"], self._mix["alpha"]
        mix = draw_mix(kind, alpha, len(draws[-1]), self._shape, chance)
        table = soft_table(mix_targets(draws[-1], self._num_classes, mix))
        return (*draws, mix.partner, mix.keep.float(), table)

    def batch(self, draws: Draws) -> Batch:
        *inner, partner, keep, table = draws
        plain = self._source.batch(tuple(inner))
        mixed = mix_images(plain.images, partner, keep)
        images = mixed.contiguous(memory_format=self._layout)
        return plain._replace(images=images, table=table)


class Attacked:
    """Any batches, with the noise from which the step's attack starts."""

    def __init__(
        self,
        source: Source,
        shapes: Sequence[tuple[int, ...]],  # of the images of each step
        seed: int,
        layout: torch.memory_format,
    ) -> None:
        self._source, self._shapes, self._seed, self._layout = source, shapes, seed, layout
        self.steps = source.steps

    def draw(self, epoch: int, step: int) -> Draws:
        """The source's draws, then noise in [−1, 1], float32 [B, C, H, W]."""
        draws = self._source.draw(epoch, step)
        chance = generator(self._seed, f"adversarial/{epoch}/{step}")
        noise = torch.rand(self._shapes[step], generator=chance)
        return (*draws, noise.mul_(2).sub_(1))

    def batch(self, draws: Draws) -> Batch:
        noise = draws[-1].contiguous(memory_format=self._layout)
        return self._source.batch(draws[:-1])._replace(noise=noise)
