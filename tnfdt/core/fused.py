"""ReLU and tensor normalization in one kernel for GPUs, as Alg. 1 has it.

One pass over the activations in place of four. An open unit is never rounded to the value of a
shut one, so that the backward pass reads the ReLU's mask off the output, exactly, in every
precision. Needs Triton, which torch's wheel for CUDA brings.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
from __future__ import annotations

import logging
from functools import cache
from typing import Any

import torch
import triton  # type: ignore[import-untyped]
import triton.language as tl  # type: ignore[import-untyped]
from torch import Tensor

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_TILE = 1024  # numbers that a program holds at a time
log = logging.getLogger(__name__)

# No annotations but constexpr: to Triton's compiler any other name is a global of the kernel.


@triton.jit
def _place(pixels, wide: tl.constexpr):
    """A program's image and pixels, on one axis of programs: the others end at 65,535."""
    blocks = tl.cdiv(pixels, wide)
    image = (tl.program_id(0) // blocks).to(tl.int64)
    return image, tl.program_id(0) % blocks * wide + tl.arange(0, wide)


@triton.jit
def _rounded(value, like):
    """A float32 as the tensor `like` would hold it, in float32: numbers are compared as such."""
    return value.to(like.dtype.element_ty).to(tl.float32)


@triton.jit
def _next_above(shut, like, bits: tl.constexpr):
    """The smallest number of the precision of `like` above one that is not positive."""
    number = shut.to(like.dtype.element_ty).to(bits, bitcast=True)
    above = tl.where(shut == 0, 1, number - 1).to(bits)
    return above.to(like.dtype.element_ty, bitcast=True).to(tl.float32)


@triton.jit
def _forward(
    x, out, shut, channels, pixels,
    image_stride, channel_stride, pixel_stride,
    bits: tl.constexpr, wide: tl.constexpr, deep: tl.constexpr,
):  # fmt: skip
    image, p = _place(pixels, wide)
    start = image * image_stride + p[:, None] * pixel_stride
    total = tl.zeros([wide], tl.float32)
    for first in range(0, channels, deep):
        c = (first + tl.arange(0, deep))[None, :]
        inside = (p < pixels)[:, None] & (c < channels)
        value = tl.load(x + start + c * channel_stride, inside, 0.0).to(tl.float32)
        total += tl.sum(tl.where(value <= 0, 0.0, value), 1)  # NaN stays NaN
    average = total / channels
    lowest = _rounded(-average, out)
    tl.store(shut + image * pixels + p, lowest, p < pixels)
    above = _next_above(lowest, out, bits)[:, None]
    tl.debug_barrier()  # in place: none writes before all have read
    for first in range(0, channels, deep):
        c = (first + tl.arange(0, deep))[None, :]
        inside = (p < pixels)[:, None] & (c < channels)
        value = tl.load(x + start + c * channel_stride, inside, 0.0).to(tl.float32)
        centred = _rounded(value - average[:, None], out)
        opened = tl.where(centred <= lowest[:, None], above, centred)
        value = tl.where(value <= 0, lowest[:, None], opened)
        tl.store(out + start + c * channel_stride, value, inside)


@triton.jit
def _backward(
    error, out, shut, result, channels, pixels,
    image_stride, channel_stride, pixel_stride,
    exact: tl.constexpr, wide: tl.constexpr, deep: tl.constexpr,
):  # fmt: skip
    image, p = _place(pixels, wide)
    start = image * image_stride + p[:, None] * pixel_stride
    lowest = tl.load(shut + image * pixels + p, p < pixels, 0.0)
    lowest = lowest.to(tl.float32)[:, None]
    total = tl.zeros([wide], tl.float32)
    if exact:
        for first in range(0, channels, deep):
            c = (first + tl.arange(0, deep))[None, :]
            inside = (p < pixels)[:, None] & (c < channels)
            values = tl.load(error + start + c * channel_stride, inside, 0.0)
            total += tl.sum(values.to(tl.float32), 1)
    share = (total / channels)[:, None]
    for first in range(0, channels, deep):
        c = (first + tl.arange(0, deep))[None, :]
        inside = (p < pixels)[:, None] & (c < channels)
        passed = tl.load(error + start + c * channel_stride, inside, 0.0).to(tl.float32) - share
        is_open = tl.load(out + start + c * channel_stride, inside, 0.0).to(tl.float32) != lowest
        tl.store(result + start + c * channel_stride, tl.where(is_open, passed, 0.0), inside)


def strides(x: Tensor) -> tuple[int, int, int] | None:
    """Strides of images, channels and pixels; None where x is not laid out in one of two ways."""
    channels, pixels = x.shape[1], x.shape[2:].numel()
    if x.is_contiguous():
        return channels * pixels, pixels, 1
    if x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last):
        return channels * pixels, 1, channels
    return None


def forward(x: Tensor, *, inplace: bool) -> tuple[Tensor, Tensor]:
    """ReLU and TN of x [N, C, H, W] or [N, C], and what shut units became, [N, 1, H, W]."""
    out = x if inplace else torch.empty_like(x)
    shut = x.new_empty((len(x), 1, *x.shape[2:]))
    bits = tl.int32 if x.dtype is torch.float32 else tl.int16
    _launch(_forward, x, (x, out, shut), {"bits": bits})
    return out, shut


def backward(error: Tensor, out: Tensor, shut: Tensor, *, exact: bool) -> Tensor:
    """The error at the ReLU's input, from that at its output and what `forward` gave."""
    result = torch.empty_like(out)
    if error.stride() != out.stride() or error.dtype != out.dtype:
        error = torch.empty_like(out).copy_(error)
    _launch(_backward, out, (error, out, shut, result), {"exact": exact})
    return result


def _launch(kernel: Any, x: Tensor, tensors: tuple[Tensor, ...], options: dict[str, Any]) -> None:
    if not x.numel():
        return
    found = strides(x)
    assert found is not None  # the caller has asked
    channels, pixels = x.shape[1], x.shape[2:].numel()
    wide, deep = _tile(channels, pixels, found[1] == 1)
    grid = (triton.cdiv(pixels, wide) * len(x),)
    options |= {"wide": wide, "deep": deep, "enable_fp_fusion": False}
    with torch.cuda.device_of(x):  # type: ignore[no-untyped-call]
        kernel[grid](*tensors, channels, pixels, *found, **options)


def _tile(channels: int, pixels: int, by_channel: bool) -> tuple[int, int]:
    """Pixels and channels of a program at a time: as many neighbours in memory as there are."""
    wide, deep = triton.next_power_of_2(pixels), triton.next_power_of_2(channels)
    if by_channel:
        deep = min(deep, 256)
        return min(wide, _TILE // deep), deep
    wide = min(wide, 256)
    return wide, min(deep, _TILE // wide)


@cache
def works_on(device: torch.device) -> bool:
    """Whether the kernel gives on this device what torch's operators give; asked once."""
    try:
        reason = _disagreement(device)
    except Exception as error:  # whatever a missing compiler or an unknown GPU makes Triton raise
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    if reason:
        log.warning("tensor normalization runs without its fused kernel on %s: %s", device, reason)
    return not reason


def _disagreement(device: torch.device) -> str:
    generator = torch.Generator().manual_seed(0)
    x, error = (torch.randn(3, 20, 5, 7, generator=generator).to(device) for _ in range(2))
    for layout in (torch.contiguous_format, torch.channels_last):
        for exact in (False, True):
            out, shut = forward(x.contiguous(memory_format=layout), inplace=False)
            found = backward(error, out, shut, exact=exact)
            expected = x.relu() - x.relu().mean(1, keepdim=True)
            passed = (error - error.mean(1, keepdim=True) * exact) * (x > 0)
            if not (_close(out, expected) and _close(found, passed)):
                return f"its results differ from torch's ({layout})"
    return ""


def _close(found: Tensor, expected: Tensor) -> bool:
    return bool(torch.allclose(found, expected, rtol=1e-5, atol=1e-6))
