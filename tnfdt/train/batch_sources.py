"""Sources of batches: single images, each once an epoch, and blends of images of many classes."""

from __future__ import annotations

from typing import Any

import torch

from tnfdt.core.augment import ShiftFlip, Windows
from tnfdt.core.full_distribution import FullDistribution, sampled_classes
from tnfdt.core.losses import loss_table
from tnfdt.core.seeding import derive, generator
from tnfdt.data.prepared import ImageSet
from tnfdt.study.schema import UserError
from tnfdt.train.control_sources import with_controls
from tnfdt.train.feed import Batch, Draws, Source, batch_bounds

Config = dict[str, Any]


def make_source(
    config: Config, data: ImageSet, layout: torch.memory_format = torch.contiguous_format
) -> Source:
    """The source of a training's batches, on the device of `data`, with images in `layout`."""
    augment, size = _augment(config["augment"], data), config["training"]["batch_size"]
    options = {"augment": augment, "seed": config["seed"], "batch_size": size, "layout": layout}
    if config["blend"] is None:
        source: Source = SingleImages(data, **options)
    else:
        source = Blends(data, config["blend"], **options)
    return with_controls(source, config, data, layout)


def _augment(settings: Config, data: ImageSet) -> ShiftFlip | None:
    """The augmentation, if any; a shift that leaves nothing of the images is refused."""
    if not any(settings.values()):
        return None
    try:
        augment = ShiftFlip(**settings)
        augment.check(data.train_x)
    except ValueError as error:
        raise UserError(str(error)) from None
    return augment


class SingleImages:
    """Every image once an epoch, in an order of the epoch's own, shifted and mirrored."""

    def __init__(
        self,
        data: ImageSet,
        *,
        augment: ShiftFlip | None,
        seed: int,
        batch_size: int,
        layout: torch.memory_format = torch.contiguous_format,
    ) -> None:
        self._augment, self._seed, self._layout = augment or ShiftFlip(0, False), seed, layout
        self._labels, self._order = data.train_y.cpu(), (-1, torch.arange(0))
        self._bounds = batch_bounds(len(self._labels), batch_size)
        self._windows = Windows(data.train_x, self._augment.shift, mirror=self._augment.flip)
        self.steps = len(self._bounds)

    def draw(self, epoch: int, step: int) -> Draws:
        """The windows of the images, int64 [B], and their classes, int64 [B]."""
        chosen = self._order_of(epoch)[slice(*self._bounds[step])]
        draws = self._augment.draw(len(chosen), generator(self._seed, f"augment/{epoch}/{step}"))
        return self._windows.starts(chosen, *draws), self._labels[chosen]

    def _order_of(self, epoch: int) -> torch.Tensor:
        if self._order[0] != epoch:
            chance = generator(self._seed, f"order/{epoch}")
            self._order = (epoch, torch.randperm(len(self._labels), generator=chance))
        return self._order[1]

    def batch(self, draws: Draws) -> Batch:
        windows, classes = draws
        pixels = self._windows.images(windows).to(torch.float32, memory_format=self._layout)
        return Batch(pixels.div_(255), classes, None)


class Blends:
    """As many blends an epoch as there are images, drawn by full distribution training."""

    def __init__(
        self,
        data: ImageSet,
        blend: Config,
        *,
        augment: ShiftFlip | None,
        seed: int,
        batch_size: int,
        layout: torch.memory_format = torch.contiguous_format,
    ) -> None:
        self._seed, self._layout, self._generator = seed, layout, torch.Generator()
        self._target = blend["target"]
        self._bounds = batch_bounds(len(data.train_y), batch_size)
        self._source = FullDistribution(
            data.train_x,
            data.train_y,
            data.num_classes,
            series=blend["series"],
            amount=blend["amount"],
            augment=augment,
            augment_when=blend["augment"],
            generator=self._generator,
        )
        self.steps = len(self._bounds)

    def draw(self, epoch: int, step: int) -> Draws:
        """The classes [B], the table of the targets unless OV, then what is mixed."""
        self._generator.manual_seed(derive(self._seed, f"blend/{epoch}/{step}"))
        first, last = self._bounds[step]
        drawn = self._source.draw(last - first)
        if self._target == "sampled":  # of a stream of its own: the images are those of `dominant`
            chance = generator(self._seed, f"ov/{epoch}/{step}")
            return (sampled_classes(drawn.targets, chance), *drawn.images)
        tables = (loss_table(drawn.targets),) if self._target == "distribution" else ()
        return (drawn.dominant, *tables, *drawn.images)

    def batch(self, draws: Draws) -> Batch:
        classes, *rest = draws
        table = rest.pop(0) if self._target == "distribution" else None
        pixels = self._source.mix(tuple(rest)).contiguous(memory_format=self._layout)
        return Batch(pixels.div_(255), classes, table)
