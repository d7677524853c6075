"""Full distribution training (Eqs. 2–4, Alg. 2): images of different classes blended into one.

A sample is a weighted sum of 1..C training images, no two of the same class, and its target is
the same weights laid on their classes. The randomness is drawn from one generator on the CPU,
so a batch does not depend on the device of the images.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple, Protocol, get_args, runtime_checkable

import torch
from torch import Generator, Tensor, nn

__all__ = ["SERIES", "Blend", "FullDistribution", "ShiftingAugment", "harmonic_factors"]

Amount = Literal["uniform", "all"]
When = Literal["each", "after"]
Augment = Callable[[Tensor, Generator | None], Tensor]
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


class Blend(NamedTuple):
    """A batch of B blended samples; `indices` and `weights` say what each is made of."""

    images: Tensor  # float32 [B, channels, H, W], 0..255 (Eq. 3)
    targets: Tensor  # float32 [B, C], rows sum to 1 (Eq. 4)
    dominant: Tensor  # int64 [B], the class with the largest factor: the label of OV
    indices: Tensor  # int64 [B, C], images in the order drawn, no two of a class
    weights: Tensor  # float32 [B, C], factors of those images; 0 beyond the amount blended


@runtime_checkable
class ShiftingAugment(Protocol):
    """An augment that only mirrors and shifts can tell its draws: `FullDistribution` then cuts
    the windows straight out of one padded copy of the set, several times faster than calling it.

    `draw` gives, per image, the window's first row and column (int64 [M], 0..2·shift) in the
    image padded with `shift` zeros on each side, and whether the image is mirrored first (bool).
    A call of the augment must consume the generator exactly as `draw` does.
    """

    @property
    def shift(self) -> int: ...

    def draw(self, count: int, generator: Generator | None) -> tuple[Tensor, Tensor, Tensor]: ...


class FullDistribution:
    """Draws batches of full distribution training from a set that stays uint8 on its device.

    images: uint8 [N, channels, H, W]; labels: integers [N] in 0..num_classes−1, every class
    present. series: a key of SERIES. augment: (images [M, channels, H, W], generator) -> the
    same shape; augment_when: "each" image before blending, or the blend "after". amount: images
    per blend, "uniform" on 1..num_classes or always "all". generator: None is torch's global
    one; its state when `batch` is called decides the batch.
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
        _check_choice("amount", amount, get_args(Amount))
        _check_choice("augment_when", augment_when, get_args(When))
        self.generator = generator
        self.num_classes = num_classes
        self._counts = _class_counts(labels, len(images), num_classes)
        self._by_class = labels.cpu().argsort(stable=True)
        self._series, self._amount = SERIES[series], amount
        self._augment_after = augment if augment_when == "after" else None
        self._mixer = _mixer(images, augment if augment_when == "each" else None)
        self._device = images.device

    def batch(self, size: int) -> Blend:
        """Alg. 2 for `size` samples at once."""
        if size < 1:
            raise ValueError(f"size: expected at least one sample, got {size}")
        classes, indices, weights = self._draw(size)
        images = self._mixer(_picks(indices, weights), self.generator)
        if self._augment_after is not None:
            images = self._augment_after(images, self.generator)
        targets = torch.zeros_like(weights).scatter_(1, classes, weights)
        dominant = classes.gather(1, weights.argmax(1, keepdim=True))[:, 0]
        rest = (targets, dominant, indices, weights)
        return Blend(images, *(tensor.to(self._device) for tensor in rest))

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
        amounts = torch.randint(1, self.num_classes + 1, (size, 1), generator=self.generator)
        return amounts if self._amount == "uniform" else amounts.fill_(self.num_classes)

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
        first = self._counts.cumsum(0) - self._counts
        uniform = torch.rand(classes.shape, dtype=torch.float64, generator=self.generator)
        within = (uniform * self._counts.take(classes)).long()
        return self._by_class.take(first.take(classes) + within)


class _Picks(NamedTuple):
    """The images of all blends one after another, M in all."""

    indices: Tensor  # int64 [M]
    weights: Tensor  # float32 [M]
    amounts: Tensor  # int64 [B], images of each blend

    @property
    def starts(self) -> Tensor:
        """Where each blend begins, int64 [B]."""
        return self.amounts.cumsum(0) - self.amounts


def _picks(indices: Tensor, weights: Tensor) -> _Picks:
    used = weights > 0
    return _Picks(indices.masked_select(used), weights.masked_select(used), used.sum(1))


Mixer = Callable[[_Picks, Generator | None], Tensor]


def _mixer(images: Tensor, augment: Augment | None) -> Mixer:
    """The fastest way to Eq. 3 for this device and augment; all of them give the same images."""
    if images.device.type != "cpu" or not hasattr(torch.ops.quantized, _BYTE_BAG):
        return _PlainMixer(images, augment)
    if augment is None:
        return _RowMixer(images)
    if isinstance(augment, ShiftingAugment):
        return _WindowMixer(images, augment)
    return _PlainMixer(images, augment)


class _PlainMixer:
    """Any device, any augment: pick, augment, convert to float, sum."""

    def __init__(self, images: Tensor, augment: Augment | None) -> None:
        self._images, self._augment = images, augment

    def __call__(self, picks: _Picks, generator: Generator | None) -> Tensor:
        device = self._images.device
        picked = self._images.index_select(0, picks.indices.to(device))
        if self._augment is not None:
            picked = self._augment(picked, generator)
        weights, starts = picks.weights.to(device), picks.starts.to(device)
        every = torch.arange(len(picked), device=device)
        rows = picked.flatten(1).float()
        sums = nn.functional.embedding_bag(
            every, rows, starts, mode="sum", per_sample_weights=weights
        )
        return sums.view(-1, *self._images.shape[1:])


class _RowMixer:
    """CPU without augment: the weighted sum reads bytes, a quarter of the traffic of floats."""

    def __init__(self, images: Tensor) -> None:
        self._shape = images.shape[1:]
        self._rows = _byte_rows(len(images), images[0].numel())
        self._rows[:, :-_TAIL] = images.flatten(1)

    def __call__(self, picks: _Picks, generator: Generator | None) -> Tensor:
        sums = _byte_bag(self._rows, picks.indices, picks.starts, picks.weights)
        return sums.view(-1, *self._shape)


class _WindowMixer:
    """CPU with shifts and flips: a shifted image is a window of the padded set.

    The set is kept once with `shift` zeros after each row of pixels and after each image, which
    also pad the next row and the next image. Mirroring is linear: the mirrored images of a blend
    are summed apart, and their sum is mirrored once.
    """

    def __init__(self, images: Tensor, augment: ShiftingAugment) -> None:
        count, channels, height, width = images.shape
        self._augment, self._shift, self._size = augment, augment.shift, (height, width, channels)
        tall, wide = height + self._shift, width + self._shift
        canvas = images.new_zeros(self._shift + 1 + count * tall, wide, channels)
        inside = canvas[self._shift + 1 :].view(count, tall, wide, channels)
        inside[:, :height, :width] = images.permute(0, 2, 3, 1)
        positions = (canvas.shape[0] - height) * wide + wide - width + 1
        window, strides = (positions, height, width * channels), (channels, wide * channels, 1)
        self._windows, self._tall, self._wide = canvas.as_strided(window, strides), tall, wide

    def __call__(self, picks: _Picks, generator: Generator | None) -> Tensor:
        start, mirrored = self._draw(picks.indices, generator)
        blends = torch.arange(len(picks.amounts)).repeat_interleave(picks.amounts)
        bags, order = (2 * blends + mirrored).sort(stable=True)
        starts = torch.searchsorted(bags, torch.arange(2 * len(picks.amounts)))
        rows = self._cut(start[order])
        sums = _byte_bag(rows, torch.arange(len(rows)), starts, picks.weights[order])
        straight, flipped = sums.view(-1, 2, *self._size).unbind(1)
        return (straight + flipped.flip(2)).permute(0, 3, 1, 2).contiguous()

    def _draw(self, indices: Tensor, generator: Generator | None) -> tuple[Tensor, Tensor]:
        """Each image's window, as the position of its first pixel, and whether it is mirrored."""
        rows, columns, mirrored = self._augment.draw(len(indices), generator)
        columns = torch.where(mirrored, 2 * self._shift - columns, columns)
        # Row 0 of the canvas is empty, so that the first image has zeros to its left as well.
        top = 1 + indices * self._tall + rows
        return top * self._wide + columns - self._shift, mirrored

    def _cut(self, start: Tensor) -> Tensor:
        """Copy the windows to rows of bytes, a whole line of pixels at a time."""
        rows = _byte_rows(len(start), self._windows[0].numel())
        target = rows[:, :-_TAIL].view(-1, *self._windows.shape[1:])
        torch.index_select(self._windows, 0, start, out=target)
        return rows


# FBGEMM's table format: each row of bytes ends with its float32 scale and its float32 offset.
_BYTE_BAG = "embedding_bag_byte_rowwise_offsets"
_TAIL = 8


def _byte_rows(count: int, length: int) -> Tensor:
    """uint8 [count, length + _TAIL] for values still to be written, with scale 1 and offset 0."""
    rows = torch.empty(count, length + _TAIL, dtype=torch.uint8)
    rows[:, length:] = torch.tensor([1.0, 0.0]).view(torch.uint8)
    return rows


def _byte_bag(rows: Tensor, indices: Tensor, starts: Tensor, weights: Tensor) -> Tensor:
    """Weighted sums of rows of bytes, float32 [bags, length]."""
    bag = getattr(torch.ops.quantized, _BYTE_BAG)
    sums: Tensor = bag(rows, indices, starts, mode=0, per_sample_weights=weights)
    return sums


def _check_images(images: Tensor) -> None:
    if images.dtype != torch.uint8 or images.dim() != 4 or not images.numel():
        found = f"{images.dtype} {list(images.shape)}"
        raise ValueError(f"images: expected torch.uint8 [N, channels, H, W], got {found}")


def _check_choice(argument: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{argument}: expected one of {', '.join(choices)}, got {value!r}")


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
