"""The paper's augmentation: shifts with zero padding and horizontal flips, a batch at a time.

"Shifting by up to 4 pixels in each direction (padding with zeros) and horizontal flipping"
(section Datasets). Every image gets its own shift and flip. The draws come from the CPU
generator that is passed in, so they do not depend on the device of the images.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class ShiftFlip:
    """Mirror each image with probability 1/2, then shift it by up to `shift` pixels in x and y.

    Pixels shifted in from outside are zero. `flip=False` never mirrors.
    """

    shift: int
    flip: bool

    def __post_init__(self) -> None:
        if self.shift < 0:
            raise ValueError(f"augment.shift is {self.shift}, expected 0 or more pixels")

    def __call__(self, images: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """images [M, C, H, W] of any dtype -> augmented images, same shape, dtype and device."""
        if not len(images) or not (self.shift or self.flip):
            return images
        self.check(images)
        drawn = place(*self.draw(len(images), generator), images.shape[-2:], self.shift)
        return shift_and_flip(images, self.shift, *(tensor.to(images.device) for tensor in drawn))

    def draw(self, count: int, generator: torch.Generator | None) -> tuple[Tensor, Tensor, Tensor]:
        """Per image: first row and column of its window in the padded image, and mirrored or not.

        CPU tensors [count]: int64 0..2·shift, int64 0..2·shift, bool. A call consumes the
        generator exactly as this does; what is switched off draws nothing.
        """
        device = "cpu" if generator is None else generator.device
        starts, flipped = torch.zeros(2, count, dtype=torch.int64), torch.zeros(count).bool()
        if self.shift:
            high, size = 2 * self.shift + 1, (2, count)
            starts = torch.randint(high, size, generator=generator, device=device).cpu()
        if self.flip:
            flipped = torch.randint(2, (count,), generator=generator, device=device).cpu().bool()
        return starts[0], starts[1], flipped

    def check(self, images: Tensor) -> None:
        """Raise if a shift would leave nothing of images [M, C, H, W]."""
        height, width = images.shape[-2:]
        if self.shift >= min(height, width):
            raise ValueError(
                f"augment.shift is {self.shift}, the images are only {height}x{width}: "
                "give a shift smaller than the image"
            )


class Windows:
    """Every shifted image of a set as a window of one padded copy, so that a batch is one gather.

    images: [N, C, H, W] of any dtype, on the device where the copy stays. The copy lies as
    [rows, columns, C] with `shift` zeros after each row of pixels and after each image, which
    also pad the next row and the next image. With `mirror` the mirrored images follow the
    straight ones. Windows are named by their first pixel, which `starts` computes.
    """

    def __init__(self, images: Tensor, shift: int, *, mirror: bool) -> None:
        count, channels, height, width = images.shape
        copies = [images, images.flip(-1)] if mirror else [images]
        tall, wide = height + shift, width + shift
        self.count, self.shift, self.size = count, shift, (height, width, channels)
        canvas = images.new_zeros(shift + 1 + len(copies) * count * tall, wide, channels)
        inside = canvas[shift + 1 :].view(len(copies), count, tall, wide, channels)
        for place, copy in zip(inside, copies, strict=True):
            place[:, :height, :width] = copy.permute(0, 2, 3, 1)
        positions = (canvas.shape[0] - height) * wide + wide - width + 1
        window, strides = (positions, height, width * channels), (channels, wide * channels, 1)
        self._all = canvas.as_strided(window, strides)

    def starts(self, indices: Tensor, rows: Tensor, columns: Tensor, mirrored: Tensor) -> Tensor:
        """The windows of images `indices`, int64 [M] on the CPU; the rest as `ShiftFlip.draw`."""
        indices = indices + mirrored * self.count
        return window_starts(indices, rows, columns, self.size[:2], self.shift)

    def rows(self, starts: Tensor, out: Tensor | None = None) -> Tensor:
        """The windows [M, H, W·C]; copied a whole line of pixels at a time."""
        return torch.index_select(self._all, 0, starts, out=out)

    def images(self, starts: Tensor) -> Tensor:
        """The windows as images [M, C, H, W], in channels_last."""
        return self.rows(starts).view(-1, *self.size).permute(0, 3, 1, 2)


def place(
    rows: Tensor, columns: Tensor, mirrored: Tensor, size: Sequence[int], shift: int
) -> tuple[Tensor, Tensor]:
    """What `shift_and_flip` needs of the draws for images [M, C, *size]: windows and mirrored ones.

    On the CPU: where each window of the straight image begins, int64 [M], and which windows are
    mirrored then, int64. To mirror a window is to mirror the image and count columns backwards.
    """
    columns = torch.where(mirrored, 2 * shift - columns, columns)
    starts = window_starts(torch.arange(len(rows)), rows, columns, size, shift)
    return starts, mirrored.nonzero()[:, 0]


def shift_and_flip(images: Tensor, shift: int, starts: Tensor, mirrored: Tensor) -> Tensor:
    """images [M, C, H, W] as `place` says, in channels_last; nothing here makes a host wait."""
    windows = Windows(images, shift, mirror=False)
    rows = windows.rows(starts).view(-1, *windows.size)
    if len(mirrored):
        rows.index_copy_(0, mirrored, rows.index_select(0, mirrored).flip(2))
    return rows.permute(0, 3, 1, 2)


def window_starts(
    indices: Tensor, rows: Tensor, columns: Tensor, size: Sequence[int], shift: int
) -> Tensor:
    """Where the windows (rows, columns) of images `indices` of `size` begin in a padded copy."""
    tall, wide = size[0] + shift, size[1] + shift
    # Row 0 of the copy is empty, so that the first image has zeros to its left as well.
    return (1 + indices * tall + rows) * wide + columns - shift
