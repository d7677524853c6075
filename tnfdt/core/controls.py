"""Controls: what else could explain the effect of full distribution training.

Label smoothing of the same entropy, mixup and CutMix, and adversarial training. Pure functions
of given draws; the draws come from a generator on the CPU, as all others do.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from tnfdt.core.full_distribution import SERIES

__all__ = [
    "Mix", "adversarial_images", "batch_statistics", "blend_entropy", "cut_out", "draw_mix",
    "matched_smoothing", "mix_images", "mix_targets", "smooth_targets", "smoothing_entropy",
]  # fmt: skip

REACH = 2.5  # radii that the steps of a PGD cover in all: enough to cross the ball (Madry et al.)


def smooth_targets(classes: Tensor, num_classes: int, smoothing: float) -> Tensor:
    """Szegedy et al. 2016: (1 − s) one-hot + s / C, float32 [B, C] from int64 classes [B]."""
    targets = torch.full((len(classes), num_classes), smoothing / num_classes)
    return targets.scatter_(1, classes[:, None], 1 - smoothing + smoothing / num_classes)


def smoothing_entropy(smoothing: float, num_classes: int) -> float:
    """Entropy in nats of a smoothed target; rises with the smoothing from 0 to log C."""
    rest = smoothing / num_classes
    shares = [1 - smoothing + rest, *[rest] * (num_classes - 1)]
    return -sum(share * math.log(share) for share in shares if share > 0)


def blend_entropy(
    num_classes: int, *, series: str = "harmonic", amount: str | int = "uniform"
) -> float:
    """Mean entropy in nats of full distribution training's targets, in closed form.

    `amount` is "uniform" on 1..C, "all", or n for uniform on 1..n, as in `FullDistribution`.
    """
    if series == "random":
        raise ValueError("series: random factors have no closed form; give a number")
    ranks = torch.arange(1, num_classes + 1, dtype=torch.float64)
    factors = SERIES[series](ranks, 1, None)
    most = min(amount, num_classes) if isinstance(amount, int) else num_classes
    amounts = [num_classes] if amount == "all" else range(1, most + 1)
    entropies = [torch.special.entr(factors[:n] / factors[:n].sum()).sum() for n in amounts]
    return float(torch.stack(entropies).mean())


def matched_smoothing(
    num_classes: int, *, series: str = "harmonic", amount: str | int = "uniform"
) -> float:
    """The label smoothing whose targets have the mean entropy of the blends', by bisection."""
    wanted = blend_entropy(num_classes, series=series, amount=amount)
    low, high = 0.0, 1.0
    for _ in range(60):  # halvings: beyond the last digit of a double
        middle = (low + high) / 2
        too_low = smoothing_entropy(middle, num_classes) < wanted
        low, high = (middle, high) if too_low else (low, middle)
    return high


class Mix(NamedTuple):
    """How the images of a batch are mixed in pairs, one draw for all; on the CPU."""

    partner: Tensor  # int64 [B], the other image of each
    share: float  # of the image itself, the rest is its partner's
    keep: Tensor  # float64 [H, W], that share pixel by pixel


def draw_mix(
    kind: str, alpha: float, size: int, shape: tuple[int, int], draws: np.random.Generator
) -> Mix:
    """One draw for a batch of `size` images of `shape` (H, W): "mixup" or "cutmix"."""
    share, partner = float(draws.beta(alpha, alpha)), torch.from_numpy(draws.permutation(size))
    if kind == "mixup":
        return Mix(partner, share, torch.full(shape, share, dtype=torch.float64))
    centre = (int(draws.integers(shape[0])), int(draws.integers(shape[1])))
    keep = cut_out(shape, share, centre)
    return Mix(partner, float(keep.mean()), keep)


def cut_out(shape: tuple[int, int], share: float, centre: tuple[int, int]) -> Tensor:
    """CutMix's patch, cut off at the border: float64 [H, W], 0 inside and 1 elsewhere."""
    ratio, inside = math.sqrt(1 - share), []
    for length, middle in zip(shape, centre, strict=True):
        cut = int(length * ratio)
        inside.append(slice(max(middle - cut // 2, 0), min(middle + (cut + 1) // 2, length)))
    keep = torch.ones(shape, dtype=torch.float64)
    keep[tuple(inside)] = 0
    return keep


def mix_images(images: Tensor, partner: Tensor, keep: Tensor) -> Tensor:
    """Zhang et al. 2018 and Yun et al. 2019: images [B, C, H, W] and partners by `keep`."""
    keep = keep.to(images.dtype)
    return images * keep + images.index_select(0, partner) * (1 - keep)


def mix_targets(classes: Tensor, num_classes: int, mix: Mix) -> Tensor:
    """The labels in the shares of the images, float32 [B, C]."""
    targets = torch.zeros(len(classes), num_classes)
    targets.scatter_(1, classes[:, None], mix.share)
    rest = torch.full((len(classes), 1), 1 - mix.share)
    return targets.scatter_add_(1, classes[mix.partner][:, None], rest)


def adversarial_images(
    loss: Callable[[Tensor], Tensor], images: Tensor, noise: Tensor, *, epsilon: float, steps: int
) -> Tensor:
    """Madry et al. 2018: PGD up the training's own loss, within epsilon and [0, 1].

    images [B, C, H, W] in [0, 1]; noise: the random start as a share of epsilon, in [−1, 1],
    of the same shape. A step is 2.5 · epsilon / steps. Weights get no gradient.
    """
    low, high = (images - epsilon).clamp_(min=0), (images + epsilon).clamp_(max=1)
    moved = torch.clamp(images + epsilon * noise, low, high)
    for _ in range(steps):
        (gradient,) = torch.autograd.grad(loss(moved.requires_grad_()), moved)
        ahead = moved.detach() + (REACH * epsilon / steps) * gradient.sign()
        moved = torch.clamp(ahead, low, high)
    return moved


@contextlib.contextmanager
def batch_statistics(model: nn.Module) -> Iterator[None]:
    """Normalize with the batch's own statistics, as in training, but leave the running ones."""
    norms = [m for m in model.modules() if getattr(m, "track_running_stats", False)]
    training = model.training
    model.train()
    for norm in norms:
        norm.track_running_stats = False  # type: ignore[assignment]
    try:
        yield
    finally:
        for norm in norms:
            norm.track_running_stats = True  # type: ignore[assignment]
        model.train(training)
