"""Full distribution training (Eqs. 2–4, Alg. 2): images of different classes blended into one.

A sample is a weighted sum of 1..C training images, no two of the same class, and its target is
the same weights laid on their classes. The randomness is drawn from one generator on the CPU,
so a batch does not depend on the device of the images.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple, get_args

import torch
from torch import Generator, Tensor

from tnfdt.core.mixers import Augment, Drawn, ShiftingAugment, make_mixer, pick

__all__ = ["SERIES", "Blend", "Draw", "FullDistribution", "ShiftingAugment", "harmonic_factors"]

Amount = Literal["uniform", "all"] | int
When = Literal["each", "after"]
Series = Callable[[Tensor, int, Generator | None], Tensor]


def harmonic_factors(n: int) -> Tensor:
    """Eq. 2: the n weights (1/i) / Σ 1/j, i = 1..n; float64 [n], falling, sum 1."""
    if n < 1:
        raise ValueError(f"n: expected at least one factor, got {n}")
    factors = 1 / torch.arange(1, n + 1, dtype=torch.float64)
    return factors / factors.sum()


def _random(ranks: Tensor, size: int, generator: Generator | None) -> Tensor:
    # 1 − [0, 1) is never zero: every image of a blend keeps a weight.
    return 1 - torch.rand(size, len(ranks), dtype=ranks.dtype, generator=generator)


SERIES: dict[str, Series] = {
    "harmonic": lambda ranks, size, generator: 1 / ranks,
    "geometric": lambda ranks, size, generator: 0.5 ** (ranks - 1),
    "uniform": lambda ranks, size, generator: torch.ones_like(ranks),
    "random": _random,
}
"""Factors before normalization: (ranks 1..C float64 [C], B, generator) -> [C] or [B, C], > 0."""


def sampled_classes(targets: Tensor, generator: Generator | None) -> Tensor:
    """A class of each row of targets [B, C], drawn with the factors as probabilities; int64 [B]."""
    edges = targets.double().cumsum(1)
    uniform = torch.rand(len(edges), 1, dtype=torch.float64, generator=generator)
    return (edges <= uniform * edges[:, -1:]).sum(1)


class Blend(NamedTuple):
    """A batch of B blended samples; `indices` and `weights` say what each is made of."""

    images: Tensor  # float32 [B, channels, H, W], 0..255 (Eq. 3)
    targets: Tensor  # float32 [B, C], rows sum to 1 (Eq. 4)
    dominant: Tensor  # int64 [B], the class with the largest factor: the label of OV
    indices: Tensor  # int64 [B, C], images in the order drawn, no two of a class
    weights: Tensor  # float32 [B, C], factors of those images; 0 beyond the amount blended


class Draw(NamedTuple):
    """What chance decides about a batch, on the CPU; the images are mixed from `images`."""

    images: Drawn
    targets: Tensor
    dominant: Tensor
    indices: Tensor
    weights: Tensor


class FullDistribution:
    """Draws batches of full distribution training from a set that stays uint8 on its device.

    images: uint8 [N, channels, H, W]; labels: integers [N] in 0..num_classes−1, every class
    present. series: a key of SERIES. augment: (images [M, channels, H, W], generator) -> the
    same shape; augment_when: "each" image before blending, or the blend "after". amount: images
    per blend, "uniform" on 1..num_classes, always "all", or n for uniform on 1..n. generator:
    None is torch's global one; its state when `batch` is called decides the batch.
    """

    def __init__(
        self,
        images: Tensor,
        labels: Tensor,
        num_classes: int,
        *,
        series: str = "harmonic",
        augment: Augment | None = None,
        generator: Generator | None = None,
        amount: Amount = "uniform",
        augment_when: When = "each",
    ) -> None:
        _check_images(images)
        if generator is not None and generator.device.type != "cpu":
            raise ValueError(f"generator: expected one on the CPU, got {generator.device}")
        _check_choice("series", series, tuple(SERIES))
        _check_amount(amount)
        _check_choice("augment_when", augment_when, get_args(When))
        self.generator = generator
        self.num_classes = num_classes
        self._counts = _class_counts(labels, len(images), num_classes)
        self._first = self._counts.cumsum(0) - self._counts
        self._by_class = labels.cpu().argsort(stable=True)
        self._series, self._amount = SERIES[series], amount
        each, after = (augment, None) if augment_when == "each" else (None, augment)
        self._mixer = make_mixer(images, each, after)
        self._device = images.device

    def batch(self, size: int) -> Blend:
        """Alg. 2 for `size` samples at once."""
        drawn = self.draw(size)
        images = self.mix(tuple(tensor.to(self._device) for tensor in drawn.images)).contiguous()
        return Blend(images, *(tensor.to(self._device) for tensor in drawn[1:]))

    def draw(self, size: int) -> Draw:
        """The random half of `batch`, on the CPU: it can run ahead of the other half."""
        if size < 1:
            raise ValueError(f"size: expected at least one sample, got {size}")
        classes, indices, weights = self._draw(size)
        images = self._mixer.draw(pick(indices, weights), self.generator)
        targets = torch.zeros_like(weights).scatter_(1, classes, weights)
        dominant = classes.gather(1, weights.argmax(1, keepdim=True))[:, 0]
        return Draw(images, targets, dominant, indices, weights)

    def mix(self, drawn: Drawn) -> Tensor:
        """The images of `Draw.images`, once that lies on the device of the set.

        In whatever memory format comes first; the generator is used only by an augment that is
        no `ShiftingAugment`.
        """
        return self._mixer.mix(drawn, self.generator)

    def _draw(self, size: int) -> tuple[Tensor, Tensor, Tensor]:
        """Classes, images and weights of `size` blends in the order drawn, each [B, C]."""
        amounts = self._draw_amounts(size)
        classes = self._draw_classes(size)
        indices = self._draw_images(classes)
        ranks = torch.arange(1, self.num_classes + 1, dtype=torch.float64)
        factors = self._series(ranks, size, self.generator) * (ranks <= amounts)
        return classes, indices, (factors / factors.sum(1, keepdim=True)).float()

    def _draw_amounts(self, size: int) -> Tensor:
        """Images per blend, int64 [B, 1]; "all" draws as well, and so sees the same classes."""
        most = self._amount if isinstance(self._amount, int) else self.num_classes
        high = min(most, self.num_classes) + 1
        amounts = torch.randint(1, high, (size, 1), generator=self.generator)
        return amounts.fill_(self.num_classes) if self._amount == "all" else amounts

    def _draw_classes(self, size: int) -> Tensor:
        """All classes in the order they would enter each blend, int64 [B, C].

        Drawing images uniformly among those of the classes still missing is drawing classes
        without replacement in proportion to their counts. An exponential race with the counts
        as rates (Gumbel top-k, after a logarithm) finishes in exactly that order.
        """
        shape = (size, self.num_classes)
        uniform = torch.rand(shape, dtype=torch.float64, generator=self.generator)
        times = uniform.log_().div_(-self._counts)
        return torch.from_numpy(times.numpy().argsort(1))  # twice as fast as torch's

    def _draw_images(self, classes: Tensor) -> Tensor:
        """One image of each class, uniformly: positions in the set, int64 of the same shape."""
        chosen = classes.flatten()
        uniform = torch.rand(len(chosen), dtype=torch.float64, generator=self.generator)
        within = (uniform * self._counts.index_select(0, chosen)).long()
        places = self._first.index_select(0, chosen) + within
        return self._by_class.index_select(0, places).view_as(classes)


def _check_images(images: Tensor) -> None:
    if images.dtype != torch.uint8 or images.dim() != 4 or not images.numel():
        found = f"{images.dtype} {list(images.shape)}"
        raise ValueError(f"images: expected torch.uint8 [N, channels, H, W], got {found}")


def _check_choice(argument: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{argument}: expected one of {', '.join(choices)}, got {value!r}")


def _check_amount(amount: Amount) -> None:
    whole = isinstance(amount, int) and not isinstance(amount, bool) and amount >= 1
    if not whole and amount not in ("uniform", "all"):
        raise ValueError(f"amount: expected uniform, all or a number of images, got {amount!r}")


def _class_counts(labels: Tensor, images: int, num_classes: int) -> Tensor:
    """Images per class, int64 [C] on the CPU."""
    if labels.is_floating_point() or labels.dtype == torch.bool or labels.shape != (images,):
        found = f"{labels.dtype} {list(labels.shape)}"
        raise ValueError(f"labels: expected integers [{images}], one per image, got {found}")
    if num_classes < 1:
        raise ValueError(f"num_classes: expected at least 1, got {num_classes}")
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= num_classes:
        raise ValueError(f"labels: expected 0..{num_classes - 1}, found {low}..{high}")
    counts = labels.cpu().long().bincount(minlength=num_classes)
    if not counts.all():
        empty = (counts == 0).nonzero()[:, 0].tolist()
        raise ValueError(f"labels: no image of class {empty}; every class needs at least one")
    return counts
