"""The paper's augmentation: shifts with zero padding and horizontal flips, a batch at a time.

"Shifting by up to 4 pixels in each direction (padding with zeros) and horizontal flipping"
(section Datasets). Every image gets its own shift and flip. The draws come from the CPU
generator that is passed in, so they do not depend on the device of the images.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
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
        drawn = place(*self.draw(len(images), generator), images.shape[1:], self.shift)
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

    A window is copied as one span of memory, padding between its rows included: several times
    faster than row by row. `inside` leaves the padding out.
    """

    def __init__(self, images: Tensor, shift: int, *, mirror: bool) -> None:
        count, channels, height, width = images.shape
        copies = [images, images.flip(-1)] if mirror else [images]
        tall, wide = height + shift, width + shift
        self.count, self.shift, self.size = count, shift, (height, width, channels)
        bytes_here = images.dtype == torch.uint8 and images.device.type == "cpu"
        zeros = byte_zeros if bytes_here else images.new_zeros
        canvas = zeros(shift + 2 + len(copies) * count * tall, wide, channels)
        inside = canvas[shift + 1 : -1].view(len(copies), count, tall, wide, channels)
        for place, copy in zip(inside, copies, strict=True):
            place[:, :height, :width] = copy.permute(0, 2, 3, 1)
        self.length = height * wide * channels
        positions = (canvas.shape[0] - height) * wide + 1
        self._all = canvas.as_strided((positions, self.length), (channels, 1))

    def starts(self, indices: Tensor, rows: Tensor, columns: Tensor, mirrored: Tensor) -> Tensor:
        """The windows of images `indices`, int64 [M] on the CPU; the rest as `ShiftFlip.draw`."""
        indices = indices + mirrored * self.count
        return window_starts(indices, rows, columns, self.size[:2], self.shift)

    def spans(self, starts: Tensor, out: Tensor | None = None) -> Tensor:
        """The windows with their padding, [M, length]."""
        return torch.index_select(self._all, 0, starts, out=out)

    def inside(self, spans: Tensor) -> Tensor:
        """What `spans` [M, length] hold of the windows, as a view [M, H, W, C]."""
        height, width, channels = self.size
        return spans.view(-1, height, width + self.shift, channels)[:, :, :width]

    def images(self, starts: Tensor) -> Tensor:
        """The windows as images [M, C, H, W], a view of their spans."""
        return self.inside(self.spans(starts)).permute(0, 3, 1, 2)


def byte_zeros(*shape: int) -> Tensor:
    """uint8 zeros on the CPU, in huge pages where the system has them.

    numpy asks for them and torch does not; random reads of a large set are a fifth faster.
    """
    return torch.from_numpy(np.empty(shape, np.uint8)).zero_()


def place(
    rows: Tensor, columns: Tensor, mirrored: Tensor, size: Sequence[int], shift: int
) -> tuple[Tensor, Tensor]:
    """What `shift_and_flip` needs of the draws for images [M, *size]: windows and mirrored ones.

    On the CPU: where each window of the straight image begins, int64 [M·C], a channel is a
    picture of its own, and which images are mirrored then, int64. To mirror a window is to
    mirror the image and count columns backwards.
    """
    columns = torch.where(mirrored, 2 * shift - columns, columns)
    pictures = torch.arange(len(rows) * size[0]).view(-1, size[0])
    starts = window_starts(pictures, rows[:, None], columns[:, None], size[1:], shift)
    return starts.flatten(), mirrored.nonzero()[:, 0]


def shift_and_flip(images: Tensor, shift: int, starts: Tensor, mirrored: Tensor) -> Tensor:
    """images [M, C, H, W] as `place` says, contiguous; nothing here makes a host wait."""
    pictures = images.reshape(-1, 1, *images.shape[2:])
    result = Windows(pictures, shift, mirror=False).images(starts).reshape(images.shape)
    if len(mirrored):
        result.index_copy_(0, mirrored, result.index_select(0, mirrored).flip(3))
    return result


def window_starts(
    indices: Tensor, rows: Tensor, columns: Tensor, size: Sequence[int], shift: int
) -> Tensor:
    """Where the windows (rows, columns) of images `indices` of `size` begin in a padded copy."""
    tall, wide = size[0] + shift, size[1] + shift
    # Row 0 of the copy is empty, so that the first image has zeros to its left as well; the last
    # row is empty, so that the last window ends within the copy.
    return (1 + indices * tall + rows) * wide + columns - shift
