"""The paper's augmentation: shifts with zero padding and horizontal flips, a batch at a time.

"Shifting by up to 4 pixels in each direction (padding with zeros) and horizontal flipping"
(section Datasets). Every image gets its own shift and flip. The draws come from the CPU
generator that is passed in, so they do not depend on the device of the images.
"""

from __future__ import annotations

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
        rows, columns, flipped = self.draw(len(images), generator)
        source, padded = _flip_and_pad(images, flipped, self.shift)
        return _cut(padded, source, rows, columns, images.shape[-2:])

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


def _flip_and_pad(images: Tensor, flipped: Tensor, shift: int) -> tuple[Tensor, Tensor]:
    """Zero-padded images [M, C, H+2s, W+2s], the mirrored ones last, and where each one lies.

    Mirroring only the images that need it costs half of mirroring all and choosing.
    """
    (count, channels, height, width), device = images.shape, images.device
    straight, mirrored = (~flipped).nonzero()[:, 0], flipped.nonzero()[:, 0]
    padded = images.new_zeros(count, channels, height + 2 * shift, width + 2 * shift)
    inside = padded[:, :, shift : shift + height, shift : shift + width]
    inside[: len(straight)] = images.index_select(0, straight.to(device))
    inside[len(straight) :] = images.index_select(0, mirrored.to(device)).flip(-1)
    source = torch.empty(count, dtype=torch.int64)
    source[torch.cat([straight, mirrored])] = torch.arange(count)
    return source, padded


def _cut(padded: Tensor, source: Tensor, rows: Tensor, columns: Tensor, size: torch.Size) -> Tensor:
    """Cut the window of `size` at (rows[m], columns[m]) out of padded[source[m]], for all m.

    A window is H·C runs of W neighbouring values. All runs of the padded batch are the rows of
    one overlapping view, so that a single index_select copies whole runs: several times faster
    than indexing pixel by pixel.
    """
    (count, channels, tall, wide), (height, width) = padded.shape, size
    runs = padded.as_strided((padded.numel() - width + 1, width), (1, 1))
    first = (source * (channels * tall * wide) + rows * wide + columns).to(padded.device)
    plane = torch.arange(channels, device=padded.device) * (tall * wide)
    line = torch.arange(height, device=padded.device) * wide
    within = (plane[:, None] + line).flatten()
    picked = runs.index_select(0, (first[:, None] + within).flatten())
    return picked.view(count, channels, height, width)
