"""Figures with real images: the paper's Figure 1, and what tensor normalization does inside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from scipy import stats  # type: ignore[import-untyped]
from torch import Tensor, nn

from tnfdt.core.full_distribution import FullDistribution
from tnfdt.core.tensor_norm import ReLUTensorNorm
from tnfdt.evidence.statistics import FloatArray
from tnfdt.figures.style import WIDTH, new_figure, style

ORANGE, PINK = "#E69F00", "#CC79A7"  # the normal approach and the blends, as in the paper
BEFORE, AFTER = "#7F7F7F", "#0072B2"
_PER_CLASS = 50  # images of a class to choose from
_BINS = 80


@dataclass(frozen=True, kw_only=True)
class Sample:
    """A blend taken apart: images [H, W, 3] in 0..1, weights falling, target [C] of sum 1."""

    parts: list[FloatArray]
    weights: list[float]
    blend: FloatArray
    target: FloatArray


def draw_sample(
    images: Tensor, labels: Tensor, num_classes: int, amount: int, generator: torch.Generator
) -> Sample:
    """Full distribution training's blend of `amount` images (Eqs. 2-4), made by the real thing.

    images: uint8 [N, channels, H, W]; labels: [N]. Only `amount` classes take part, and all of
    them: so one draw has exactly that many images.
    """
    classes = torch.randperm(num_classes, generator=generator)[:amount]
    members = [(labels == c).nonzero()[:_PER_CLASS, 0] for c in classes]
    chosen = torch.cat(members)
    local = torch.repeat_interleave(torch.tensor([len(member) for member in members]))
    source = FullDistribution(images[chosen], local, amount, amount="all", generator=generator)
    blend = source.batch(1)
    target = np.zeros(num_classes)
    target[classes.numpy()] = blend.targets[0].numpy()
    return Sample(
        parts=[picture(images[chosen[i]]) for i in blend.indices[0]],
        weights=blend.weights[0].tolist(),
        blend=picture(blend.images[0]),
        target=target,
    )


def picture(image: Tensor) -> FloatArray:
    """[channels, H, W] in 0..255 as [H, W, 3] in 0..1; one channel is grey."""
    array = image.detach().float().numpy().transpose(1, 2, 0) / 255
    return np.broadcast_to(np.clip(array, 0, 1), (*array.shape[:2], 3)).astype(np.float64)


def blends(samples: Sequence[Sample]) -> Figure:
    """The paper's Figure 1: components, factors, blend and label distribution, one row each."""
    columns = max(len(sample.parts) for sample in samples)
    with style(**{"axes.grid": False}):
        figure = new_figure(WIDTH, 1.12 * len(samples) + 0.35)
        ratios = [1.0] * (columns + 1) + [1.9]
        axes = figure.subplots(len(samples), columns + 2, squeeze=False, width_ratios=ratios)
        for line, sample in zip(axes, samples, strict=True):
            colour = ORANGE if len(sample.parts) == 1 else PINK
            _draw_parts(line[:columns], sample, colour)
            _show(line[columns], sample.blend, colour)
            line[columns].set_ylabel("=", rotation=0, va="center", labelpad=8, fontsize=11)
            _draw_target(line[columns + 1], sample.target, colour)
        axes[0][columns].set_title("input D")
        axes[0][columns + 1].set_title("ground truth GT")
        axes[-1][columns + 1].set_xlabel("class")
    return figure


def _draw_parts(axes: Sequence[Axes], sample: Sample, colour: str) -> None:
    for axis in axes[len(sample.parts) :]:
        axis.set_visible(False)
    for place, (axis, part, weight) in enumerate(
        zip(axes, sample.parts, sample.weights, strict=False)
    ):
        _show(axis, part, colour)
        axis.set_xlabel(f"$F_{{{place + 1}}}$ = {weight:.3f}", labelpad=2)
        if place:
            axis.set_ylabel("+", rotation=0, va="center", labelpad=6, fontsize=11)


def _show(axis: Axes, picture: FloatArray, colour: str) -> None:
    axis.imshow(picture, interpolation="nearest")
    axis.set(xticks=[], yticks=[])
    for spine in axis.spines.values():
        spine.set(visible=True, color=colour, linewidth=2)


def _draw_target(axis: Axes, target: FloatArray, colour: str) -> None:
    axis.bar(np.arange(len(target)), target, color=colour, width=0.8)
    axis.set(ylim=(0, 1.05), yticks=[0, 0.5, 1], xlim=(-0.6, len(target) - 0.4))
    axis.xaxis.set_major_locator(MaxNLocator(5, integer=True))


@dataclass(frozen=True, kw_only=True)
class Layer:
    """One ReLU with tensor normalization: activations before and after it, [values], and the
    mean matrix of the first image (Eq. 1), [H, W]."""

    number: int
    before: FloatArray
    after: FloatArray
    means: FloatArray


def watch_layers(model: nn.Module, images: Tensor, wanted: int = 3) -> list[Layer]:
    """Run images [N, C, H, W] in 0..1 and look into `wanted` layers from the first to the last."""
    modules = [module for module in model.modules() if isinstance(module, ReLUTensorNorm)]
    places = sorted({round(x) for x in np.linspace(0, len(modules) - 1, wanted)})
    seen: dict[int, Tensor] = {}
    handles = [
        modules[place].register_forward_pre_hook(
            # A copy: the layer may overwrite its input.
            lambda _module, args, place=place: seen.__setitem__(place, args[0].detach().clone())
        )
        for place in places
    ]
    with torch.no_grad():
        model.eval()(images)
    for handle in handles:
        handle.remove()
    return [_layer(place, seen[place]) for place in places if place in seen]


def _layer(place: int, inputs: Tensor) -> Layer:
    before = torch.relu(inputs.double())
    means = before.mean(1, keepdim=True)
    return Layer(
        number=place + 1,
        before=before.flatten().numpy(),
        after=(before - means).flatten().numpy(),
        means=means[0, 0].numpy(),
    )


def activations(layers: Sequence[Layer], picture: FloatArray) -> Figure:
    """Distributions before and after tensor normalization, and the matrix that is subtracted."""
    with style():
        figure = new_figure(WIDTH, 3.9)
        axes = figure.subplots(2, len(layers) + 1, height_ratios=[1.25, 1], squeeze=False)
        axes[0][0].set_visible(False)
        _frame(axes[1][0], "image")
        axes[1][0].imshow(picture, interpolation="nearest")
        for layer, upper, lower in zip(layers, axes[0][1:], axes[1][1:], strict=True):
            _draw_histogram(upper, layer)
            _frame(lower, "mean over channels")
            drawn = lower.imshow(layer.means, cmap="cividis", interpolation="nearest")
            figure.colorbar(drawn, ax=lower, shrink=0.8)
        axes[0][1].set_ylabel("density")
        handles, labels = axes[0][1].get_legend_handles_labels()
        figure.legend(handles, labels, loc="upper left", bbox_to_anchor=(0.0, 0.97))
    return figure


def _frame(axis: Axes, title: str) -> None:
    axis.set(xticks=[], yticks=[], title=title)
    axis.grid(visible=False)


def _draw_histogram(axis: Axes, layer: Layer) -> None:
    low, high = np.quantile(layer.after, 0.001), np.quantile(layer.before, 0.999)
    edges = np.linspace(low, max(high, low + 1e-6), _BINS).tolist()
    for values, colour, name in (
        (layer.before, BEFORE, "before TN"),
        (layer.after, AFTER, "after TN"),
    ):
        axis.hist(values, edges, density=True, histtype="stepfilled", color=colour, alpha=0.35)
        axis.hist(values, edges, density=True, histtype="step", color=colour, label=name)
        axis.axvline(values.mean(), color=colour, lw=1, ls="--")
    axis.set_yscale("log")
    skews = f"skewness {stats.skew(layer.before):.1f} → {stats.skew(layer.after):.1f}"
    axis.set(xlabel="activation", title=f"ReLU {layer.number}\n{skews}")
