"""Backbones as one function from pixels in [0, 1] to logits.

Any network that timm knows by name, and WideResNets as `wrn{depth}_{width}`. timm takes a
second to import, so it is imported when a network is built.
"""

from __future__ import annotations

import difflib
import re
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from tnfdt.core.tensor_norm import Backward, insert_tensor_norm, set_backward

__all__ = ["MODELS", "Normalize", "check_name", "create_model", "set_backward"]

Stem = Literal["cifar", "imagenet"]
Builder = Callable[[int, Stem], nn.Module]
DEEPEST, WIDEST = 1000, 64  # of a WideResNet: beyond, a typing error would train forever
MEAN = (122, 117, 104)  # red, green, blue, in 0..255


def create_model(
    name: str,
    num_classes: int,
    *,
    stem: Stem = "cifar",
    tensor_norm: Backward | None = None,
    mean: Sequence[float] = MEAN,
) -> nn.Module:
    """A network from pixels in [0, 1], [N, 3, H, W], to logits [N, num_classes].

    name: a key of MODELS, `wrn{depth}_{width}` or any name of timm's. stem: "cifar" keeps the
    resolution of small images (3×3, stride 1, no pooling), "imagenet" is the network's own.
    tensor_norm: the backward of the tensor normalization after every ReLU, None for a network
    without. The initial weights (He et al. 2015) depend on torch's global generator alone.
    """
    if num_classes < 1:
        raise ValueError(f"num_classes: expected at least 1, got {num_classes}")
    if stem not in get_args(Stem):
        raise ValueError(f"stem: expected 'cifar' or 'imagenet', got {stem!r}")
    try:
        network = _builder(name)(num_classes, stem)
    except ImportError as error:
        raise ImportError(
            f"create_model needs timm ({error}); pip install 'tnfdt[harness]'"
        ) from None
    _he_init(network)
    if tensor_norm is not None:
        insert_tensor_norm(network, tensor_norm)
    return nn.Sequential(OrderedDict(normalize=Normalize(mean), backbone=network))


class Normalize(nn.Module):
    """(255·x − mean) / 256 for pixels x in [0, 1], floating point [N, 3, H, W]."""

    mean: Tensor

    def __init__(self, mean: Sequence[float] = MEAN) -> None:
        super().__init__()
        if len(mean) != 3:
            raise ValueError(f"mean: expected three numbers (red, green, blue), got {tuple(mean)}")
        self.register_buffer("mean", torch.tensor(mean, dtype=torch.float32).view(3, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        if x.dim() != 4 or x.shape[1] != 3 or not x.is_floating_point():
            found = f"{x.dtype} {list(x.shape)}"
            raise ValueError(f"x: expected pixels in [0, 1], floating point [N, 3, H, W]: {found}")
        return (255 * x - self.mean) / 256


def _from_timm(name: str, num_classes: int, stem: Stem) -> nn.Module:
    import timm

    network: nn.Module = timm.create_model(name, num_classes=num_classes)
    return _cifar_stem(name, network) if stem == "cifar" else network


def _wide_resnet(depth: int, width: int, num_classes: int, stem: Stem) -> nn.Module:
    """Zagoruyko & Komodakis 2016: three stages of pre-activation basic blocks, 16·width wide."""
    from timm.layers.create_conv2d import create_conv2d
    from timm.layers.norm_act import BatchNormAct2d
    from timm.models.resnetv2 import ResNetV2

    network: nn.Module = ResNetV2(
        layers=[(depth - 4) // 6] * 3,
        channels=(16 * width, 32 * width, 64 * width),
        stem_chs=16,
        num_classes=num_classes,
        basic=True,
        bottle_ratio=1.0,
        conv_layer=create_conv2d,
        norm_layer=BatchNormAct2d,
    )
    return _cifar_stem("wrn", network) if stem == "cifar" else network


MODELS: dict[str, Builder] = {
    "resnet34": partial(_from_timm, "resnet34"),
    "resnet152": partial(_from_timm, "resnet152"),
    "wrn28_10": partial(_wide_resnet, 28, 10),
    "wrn10_1": partial(_wide_resnet, 10, 1),
}
"""Networks by name, as functions of (num_classes, stem). A network of your own is one entry."""


def check_name(name: str) -> None:
    """Raise a ValueError, with close matches, if there is no network of this name."""
    _builder(name)


def _builder(name: str) -> Builder:
    if name in MODELS:
        return MODELS[name]
    if wide := re.fullmatch(r"wrn(\d{1,9})_(\d{1,9})", name):
        depth, width = int(wide[1]), int(wide[2])
        if not (10 <= depth <= DEEPEST and depth % 6 == 4 and 1 <= width <= WIDEST):
            raise ValueError(
                f"name: {name} is no WideResNet; the depth is 10, 16, 22, 28… up to {DEEPEST}, "
                f"the width 1 to {WIDEST}"
            )
        return partial(_wide_resnet, depth, width)
    import timm

    if timm.is_model(name):
        return partial(_from_timm, name)
    known = sorted({*MODELS, *timm.list_models()})
    close = difflib.get_close_matches(name, known, n=4)
    hint = f"did you mean {', '.join(close)}?" if close else "see timm.list_models()"
    raise ValueError(f"name: no network {name!r}; {hint}")


def takes_no_such_size(error: Exception) -> bool:
    """Whether a forward pass failed because the network is made for images of another size."""
    words = ("Kernel size can't be greater", "Output size is too small")
    return isinstance(error, AssertionError) or any(word in str(error) for word in words)


def size_refused(name: str, shape: Sequence[int], error: Exception) -> str:
    """What to say of such a network; shape: of the images, [N, 3, H, W]."""
    size = "x".join(map(str, shape[-2:]))
    return f"network {name}: {error}; it does not take images of {size}: choose another network"


def _he_init(network: nn.Module) -> None:
    """He et al. 2015, Eq. 10: weights ~ N(0, 2 / fan-in), biases 0, and no norm starts at zero."""
    for module in network.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
        elif isinstance(module, nn.BatchNorm2d | nn.GroupNorm | nn.LayerNorm):
            if module.weight is not None:
                nn.init.ones_(module.weight)
        else:
            continue
        if module.bias is not None:
            nn.init.zeros_(module.bias)


def _cifar_stem(name: str, network: nn.Module) -> nn.Module:
    """Make the network take small images: no downsampling before the first block."""
    for attributes, adapt in _STEMS.items():
        if all(_has(network, attribute) for attribute in attributes):
            adapt(network)
            return network
    raise ValueError(f"stem: 'cifar' is not defined for {name}; use stem='imagenet'")


def _has(network: nn.Module, path: str) -> bool:
    try:
        network.get_submodule(path)
    except AttributeError:
        return False
    return True


def _three_by_three(conv: nn.Module) -> nn.Module:
    """The stem's convolution at full resolution: 3×3, stride 1; of a deep stem, the first one."""
    if isinstance(conv, nn.Sequential):
        return nn.Sequential(_three_by_three(conv[0]), *conv[1:])
    if type(conv) is not nn.Conv2d:
        raise ValueError(f"stem: 'cifar' cannot adapt a {type(conv).__name__}; use 'imagenet'")
    return nn.Conv2d(conv.in_channels, conv.out_channels, 3, 1, 1, bias=conv.bias is not None)


def _replace_stem(conv: str, pools: Sequence[str], network: nn.Module) -> None:
    network.set_submodule(conv, _three_by_three(network.get_submodule(conv)))
    for pool in pools:
        if _has(network, pool):
            network.set_submodule(pool, nn.Identity())


def _adapt_vgg(network: nn.Module) -> None:
    """A 1×1 head, as nothing is left to pool to 7×7, and pools that keep the last odd row."""
    head = network.get_submodule("pre_logits")
    fc1 = head.get_submodule("fc1")
    assert isinstance(fc1, nn.Conv2d)
    head.fc1 = nn.Conv2d(fc1.in_channels, fc1.out_channels, 1)
    head.input_kernel_size = 1  # type: ignore[assignment]
    for module in network.modules():
        if isinstance(module, nn.MaxPool2d):
            module.ceil_mode = True


_STEMS: dict[tuple[str, ...], Callable[[nn.Module], None]] = {
    ("conv1", "maxpool"): partial(_replace_stem, "conv1", ["maxpool"]),  # ResNet and its kin
    ("stem.conv", "stem.pool"): partial(_replace_stem, "stem.conv", ["stem.pad", "stem.pool"]),
    ("stem.conv1", "stem.pool"): partial(_replace_stem, "stem.conv1", ["stem.pad", "stem.pool"]),
    ("features.conv0", "features.pool0"): partial(  # DenseNet
        _replace_stem, "features.conv0", ["features.pool0"]
    ),
    ("conv_stem", "blocks"): partial(_replace_stem, "conv_stem", []),  # MobileNet, EfficientNet
    ("features", "pre_logits.fc1"): _adapt_vgg,
}
"""How to adapt a network, by the submodules that its family has."""
