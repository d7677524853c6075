"""Weighted sums of images (Eq. 3), each device and augmentation in its fastest way.

A mixer works in two halves. `draw` decides on the CPU, where chance comes from, and gives the
tensors that the sums need; `mix` makes the images on the device from those tensors alone, so
that they can be drawn ahead and copied at once. All mixers give the same images.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from torch import Generator, Tensor, nn

from tnfdt.core.augment import Windows, byte_zeros, place, shift_and_flip

Augment = Callable[[Tensor, Generator | None], Tensor]
Drawn = tuple[Tensor, ...]


class Picks(NamedTuple):
    """The images of all blends one after another, M in all."""

    indices: Tensor  # int64 [M]
    weights: Tensor  # float32 [M]
    amounts: Tensor  # int64 [B], images of each blend

    @property
    def starts(self) -> Tensor:
        """Where each blend begins, int64 [B]."""
        return self.amounts.cumsum(0) - self.amounts


def pick(indices: Tensor, weights: Tensor) -> Picks:
    """What blends of indices and weights [B, C] are made of: the images of weight above 0."""
    used = weights > 0
    return Picks(indices.masked_select(used), weights.masked_select(used), used.sum(1))


class Mixer(Protocol):
    """Makes the blended images of `picks`, float32 [B, channels, H, W] in 0..255."""

    def draw(self, picks: Picks, generator: Generator | None) -> Drawn: ...

    def mix(self, drawn: Drawn, generator: Generator | None) -> Tensor:
        """`drawn` lies on the device of the images; only an unknown augment uses `generator`."""
        ...


@runtime_checkable
class ShiftingAugment(Protocol):
    """An augment that only mirrors and shifts can tell its draws: `FullDistribution` then cuts
    the windows straight out of one padded copy of the set, several times faster than calling it.

    `draw` gives, per image, the window's first row and column (int64 [M], 0..2·shift) in the
    image padded with `shift` zeros on each side, and whether the image is mirrored first (bool),
    which happens only with `flip`. A call of the augment must consume the generator exactly as
    `draw` does.
    """

    @property
    def shift(self) -> int: ...

    @property
    def flip(self) -> bool: ...

    def draw(self, count: int, generator: Generator | None) -> tuple[Tensor, Tensor, Tensor]: ...


class _NoAugment:
    """Draws nothing, moves nothing."""

    shift, flip = 0, False

    def draw(self, count: int, generator: Generator | None) -> tuple[Tensor, Tensor, Tensor]:
        nothing = torch.zeros(count, dtype=torch.int64)
        return nothing, nothing, nothing.bool()


def make_mixer(images: Tensor, each: Augment | None, after: Augment | None) -> Mixer:
    """The mixer for images uint8 [N, channels, H, W], augmented before or after they are summed."""
    mixer = _make_mixer(images, each)
    return mixer if after is None else _AugmentAfter(mixer, after, images)


def _make_mixer(images: Tensor, augment: Augment | None) -> Mixer:
    if augment is not None and not isinstance(augment, ShiftingAugment):
        return _PlainMixer(images, augment)
    if images.device.type != "cpu" or not hasattr(torch.ops.quantized, _BYTE_BAG):
        return _GatherMixer(images, augment or _NoAugment())
    return _RowMixer(images) if augment is None else _WindowMixer(images, augment)


class _PlainMixer:
    """Any device, an augment of which nothing is known: pick, augment, convert to float, sum."""

    def __init__(self, images: Tensor, augment: Augment) -> None:
        self._images, self._augment = images, augment

    def draw(self, picks: Picks, generator: Generator | None) -> Drawn:
        return picks.indices, picks.starts, picks.weights

    def mix(self, drawn: Drawn, generator: Generator | None) -> Tensor:
        indices, starts, weights = drawn
        picked = self._augment(self._images.index_select(0, indices), generator)
        every = torch.arange(len(picked), device=picked.device)
        return _float_bag(picked, every, starts, weights)


class _GatherMixer:
    """Any device, shifts and flips: one gather from the padded set, straight and mirrored."""

    def __init__(self, images: Tensor, augment: ShiftingAugment) -> None:
        self._augment = augment
        self._windows = Windows(images, augment.shift, mirror=augment.flip)
        self._every = torch.arange(0, device=images.device)

    def draw(self, picks: Picks, generator: Generator | None) -> Drawn:
        draws = self._augment.draw(len(picks.indices), generator)
        return self._windows.starts(picks.indices, *draws), picks.starts, picks.weights

    def mix(self, drawn: Drawn, generator: Generator | None) -> Tensor:
        windows, starts, weights = drawn
        if len(self._every) < len(windows):  # kept: it would be a kernel a batch
            self._every = torch.arange(2 * len(windows), device=windows.device)
        picked = self._windows.images(windows)
        return _float_bag(picked, self._every[: len(windows)], starts, weights)


class _RowMixer:
    """CPU without augment: the weighted sum reads bytes, a quarter of the traffic of floats."""

    def __init__(self, images: Tensor) -> None:
        self._size = images.shape[1:]
        self._rows = _byte_rows(len(images), images[0].numel())
        self._rows[:, :-_TAIL] = images.flatten(1)

    def draw(self, picks: Picks, generator: Generator | None) -> Drawn:
        return picks.indices, picks.starts, picks.weights

    def mix(self, drawn: Drawn, generator: Generator | None) -> Tensor:
        return _byte_bag(self._rows, *drawn).view(-1, *self._size)


class _WindowMixer:
    """CPU with shifts and flips: a shifted image is a window of the padded set, as bytes.

    Mirroring is linear: the mirrored images of a blend are summed apart, and their sum is
    mirrored once. So the padded set holds no mirrored images.
    """

    def __init__(self, images: Tensor, augment: ShiftingAugment) -> None:
        self._augment = augment
        self._windows = Windows(images, augment.shift, mirror=False)
        self._rows = _byte_rows(0, self._windows.length)

    def draw(self, picks: Picks, generator: Generator | None) -> Drawn:
        rows, columns, mirrored = self._augment.draw(len(picks.indices), generator)
        columns = torch.where(mirrored, 2 * self._augment.shift - columns, columns)
        straight = torch.zeros_like(mirrored)
        windows = self._windows.starts(picks.indices, rows, columns, straight)
        blends = torch.arange(len(picks.amounts)).repeat_interleave(picks.amounts)
        bags, order = (2 * blends + mirrored).sort(stable=True)
        starts = torch.searchsorted(bags, torch.arange(2 * len(picks.amounts)))
        return windows.index_select(0, order), starts, picks.weights.index_select(0, order)

    def mix(self, drawn: Drawn, generator: Generator | None) -> Tensor:
        windows, starts, weights = drawn
        if len(self._rows) < len(windows):  # kept: new memory would cost as much as the copy
            self._rows = _byte_rows(2 * len(windows), self._windows.length)
            self._every = torch.arange(2 * len(windows))
        rows = self._rows[: len(windows)]
        self._windows.spans(windows, out=rows[:, :-_TAIL])
        bags = _byte_bag(rows, self._every[: len(windows)], starts, weights)
        sums = self._windows.inside(bags)
        return (sums[::2] + sums[1::2].flip(2)).permute(0, 3, 1, 2)


class _AugmentAfter:
    """Augments the sums that another mixer makes."""

    def __init__(self, mixer: Mixer, augment: Augment, images: Tensor) -> None:
        self._mixer, self._augment, self._size = mixer, augment, images.shape[1:]

    def draw(self, picks: Picks, generator: Generator | None) -> Drawn:
        drawn = self._mixer.draw(picks, generator)
        if not isinstance(self._augment, ShiftingAugment):
            return drawn
        draws = self._augment.draw(len(picks.amounts), generator)
        return (*drawn, *place(*draws, self._size, self._augment.shift))

    def mix(self, drawn: Drawn, generator: Generator | None) -> Tensor:
        if not isinstance(self._augment, ShiftingAugment):
            return self._augment(self._mixer.mix(drawn, generator), generator)
        *rest, starts, mirrored = drawn
        sums = self._mixer.mix(tuple(rest), generator)
        return shift_and_flip(sums, self._augment.shift, starts, mirrored)


def _float_bag(images: Tensor, indices: Tensor, starts: Tensor, weights: Tensor) -> Tensor:
    """Weighted sums of images [M, channels, H, W] of any dtype, float32 [bags, channels, H, W]."""
    rows = images.to(torch.float32, memory_format=torch.contiguous_format).flatten(1)
    sums = nn.functional.embedding_bag(
        indices, rows, starts, mode="sum", per_sample_weights=weights
    )
    return sums.view(-1, *images.shape[1:])


# FBGEMM's table format: each row of bytes ends with its float32 scale and its float32 offset.
_BYTE_BAG = "embedding_bag_byte_rowwise_offsets"
_TAIL = 8


def _byte_rows(count: int, length: int) -> Tensor:
    """uint8 [count, length + _TAIL] for values still to be written, with scale 1 and offset 0."""
    rows = byte_zeros(count, length + _TAIL)
    rows[:, length:] = torch.tensor([1.0, 0.0]).view(torch.uint8)
    return rows


def _byte_bag(rows: Tensor, indices: Tensor, starts: Tensor, weights: Tensor) -> Tensor:
    """Weighted sums of rows of bytes, float32 [bags, length]."""
    bag = getattr(torch.ops.quantized, _BYTE_BAG)
    sums: Tensor = bag(rows, indices, starts, mode=0, per_sample_weights=weights)
    return sums
