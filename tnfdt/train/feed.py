"""The training feed: draws made ahead on the CPU, one copy a step, batches made on the device.

Draws are functions of (seed, epoch, step) alone, so a run can go on at any step with the same
batches, and a thread can prepare the next step while the device computes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

Draws = tuple[Tensor, ...]
T = TypeVar("T")

_ALIGN = 16  # bytes: every tensor of a packed buffer begins at a multiple


class Batch(NamedTuple):
    """What one step learns from, on the device."""

    images: Tensor  # float32 [B, C, H, W] in [0, 1]
    classes: Tensor  # int64 [B]
    table: Tensor | None  # `loss_table` of the targets [B, classes]; None: the classes train
    noise: Tensor | None = None  # random start of the attack that the step learns against


class Source(Protocol):
    """Where the batches of a training come from, in two halves."""

    steps: int  # of an epoch

    def draw(self, epoch: int, step: int) -> Draws:
        """All that chance decides, as CPU tensors; a function of (seed, epoch, step) alone."""
        ...

    def batch(self, draws: Draws) -> Batch:
        """The batch, from draws that lie on the device. Nothing here may make the host wait."""
        ...


def batch_bounds(count: int, size: int) -> list[tuple[int, int]]:
    """First and last + 1 of each batch of an epoch over `count` images; the last may be smaller.

    A rest of one image joins the batch before it: the variance of batch normalization needs two
    values, and 1×1 feature maps of one image have one.
    """
    edges = list(range(0, count, size))
    if count % size == 1 and len(edges) > 1:
        edges.pop()
    return list(zip(edges, [*edges[1:], count], strict=True))


def batches(source: Source, epoch: int, start: int, device: torch.device) -> Iterator[Batch]:
    """The batches of an epoch from step `start` on."""
    steps = range(start, source.steps)
    if device.type == "cpu":  # nothing to copy, and the cores have their own work
        for step in steps:
            yield source.batch(source.draw(epoch, step))
        return
    for packed in prefetched(lambda step: pack(source.draw(epoch, step), device), steps):
        yield source.batch(packed.unpack(device))


def prefetched(make: Callable[[int], T], steps: Iterable[int]) -> Iterator[T]:
    """make(step) of each step, in order; a thread makes the next one while this one is used."""
    pending: Future[T] | None = None
    with ThreadPoolExecutor(1, thread_name_prefix="draws") as pool:
        for step in steps:
            following = pool.submit(make, step)
            if pending is not None:
                yield pending.result()
            pending = following
        if pending is not None:
            yield pending.result()


class Packed(NamedTuple):
    """Tensors side by side in one buffer, so that they cross to the device in one copy."""

    buffer: Tensor  # uint8
    parts: list[tuple[torch.dtype, torch.Size, int]]  # type, shape, first byte of each

    def unpack(self, device: torch.device) -> Draws:
        """The tensors on the device, as views of the copied buffer; the host does not wait."""
        copied = self.buffer.to(device, non_blocking=device.type == "cuda")
        return tuple(
            copied[first : first + math.prod(shape) * dtype.itemsize].view(dtype).view(shape)
            for dtype, shape, first in self.parts
        )


def pack(draws: Draws, device: torch.device) -> Packed:
    """Copy CPU tensors into one buffer, pinned where the device is CUDA."""
    parts, end = [], 0
    for tensor in draws:
        parts.append((tensor.dtype, tensor.shape, end))
        end += -(-tensor.nbytes // _ALIGN) * _ALIGN
    buffer = torch.empty(end, dtype=torch.uint8)
    for tensor, (_, _, first) in zip(draws, parts, strict=True):
        buffer[first : first + tensor.nbytes] = tensor.contiguous().view(-1).view(torch.uint8)
    return Packed(buffer.pin_memory() if device.type == "cuda" else buffer, parts)
