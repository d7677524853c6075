"""Backbones: what they are, how they start, and that TN changes nothing but the function."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
from safetensors.torch import load, save
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from tnfdt.core.tensor_norm import ReLUTensorNorm
from tnfdt.models import MODELS, Normalize, create_model, set_backward


def on_meta(name: str, **options: Any) -> nn.Module:
    """Shapes only: no weights are drawn, which makes the large networks cheap to test."""
    with torch.device("meta"):
        return create_model(name, options.pop("num_classes", 10), **options)


def parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def multiply_adds(model: nn.Module, size: int = 32) -> float:
    with FlopCounterMode(display=False) as counter:
        model.eval()(torch.empty(1, 3, size, size, device="meta"))
    return float(counter.get_total_flops() / 2)


def relus(model: nn.Module, kind: type[nn.Module] = ReLUTensorNorm) -> int:
    return sum(isinstance(module, kind) for module in model.modules())


@cache
def seeded(name: str = "wrn10_1", seed: int = 0, tensor_norm: Any = None) -> nn.Module:
    torch.manual_seed(seed)
    return create_model(name, 10, tensor_norm=tensor_norm)


# Parameters at ten classes and multiply-adds at 32×32; WideResNet: Zagoruyko & Komodakis 2016.
ARCHITECTURES = [
    ("resnet34", 21_282_122, 1.159e9, 33),
    ("resnet152", 58_156_618, 3.722e9, 151),
    ("wrn28_10", 36_479_194, 5.243e9, 25),
    ("wrn10_1", 77_850, 0.0125e9, 7),
    ("wrn16_2", 691_674, 0.101e9, 13),
    ("resnet18", 11_173_962, 0.555e9, 17),
]


@pytest.mark.parametrize(("name", "size", "work", "places"), ARCHITECTURES)
def test_architecture(name: str, size: int, work: float, places: int) -> None:
    plain, normed = on_meta(name), on_meta(name, tensor_norm="paper")
    assert parameters(plain) == parameters(normed) == size
    assert multiply_adds(plain) == pytest.approx(work, rel=2e-3)
    assert relus(plain, nn.ReLU) == relus(normed) == places
    assert relus(normed, nn.ReLU) == relus(plain) == 0


def test_wide_resnet_is_as_published() -> None:
    """WideResNet-28-10 on CIFAR: 36.5 million parameters, 5.24 billion multiply-adds."""
    model = on_meta("wrn28_10")
    assert round(parameters(model) / 1e6, 1) == 36.5
    assert round(multiply_adds(model) / 1e9, 2) == 5.24


@pytest.mark.parametrize(
    "name", ["resnet34", "wrn28_10", "resnet26d", "resnetv2_18d", "densenet121"]
)
def test_cifar_stem_keeps_the_resolution(name: str) -> None:
    """The ImageNet stem shrinks an image four times: its blocks then work as much at 128×128."""
    cifar = multiply_adds(on_meta(name), 32)
    imagenet = multiply_adds(on_meta(name, stem="imagenet"), 128)
    assert cifar / imagenet == pytest.approx(1, rel=0.15)


def test_resnet_stem_is_three_by_three_without_pooling() -> None:
    network = on_meta("resnet34").get_submodule("backbone")
    conv = network.get_submodule("conv1")
    assert isinstance(conv, nn.Conv2d)
    assert (conv.kernel_size, conv.stride, conv.padding) == ((3, 3), (1, 1), (1, 1))
    assert isinstance(network.get_submodule("maxpool"), nn.Identity)


@pytest.mark.parametrize("size", [8, 16, 28, 32])
@pytest.mark.parametrize("name", ["vgg11_bn", "resnet18", "wrn10_1", "mobilenetv3_small_100"])
def test_small_images_of_any_size(name: str, size: int) -> None:
    model = on_meta(name, tensor_norm="exact")
    images = torch.rand(2, 3, size, size, device="meta")
    assert model(images).shape == (2, 10)


def test_a_timm_network_learns_with_tensor_norm() -> None:
    torch.manual_seed(0)
    model = create_model("mobilenetv3_small_050", 4, tensor_norm="paper").train()
    images, labels = torch.rand(8, 3, 16, 16), torch.arange(8) % 4
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    losses = []
    for _ in range(8):
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]


def test_input_is_normalized_inside() -> None:
    pixels = torch.tensor([0.0, 1.0, 0.5]).view(1, 3, 1, 1)
    expected = torch.tensor([-122.0, 255.0 - 117.0, 127.5 - 104.0]) / 256
    model = seeded()
    torch.testing.assert_close(model.get_submodule("normalize")(pixels).flatten(), expected)
    assert model.state_dict()["normalize.mean"].flatten().tolist() == [122, 117, 104]
    other = create_model("wrn10_1", 10, mean=(1, 2, 3))
    assert other.state_dict()["normalize.mean"].flatten().tolist() == [1, 2, 3]


def test_initial_weights_depend_on_the_seed_alone() -> None:
    first = seeded().state_dict()
    torch.manual_seed(0)
    again = create_model("wrn10_1", 10).state_dict()
    normed = seeded(tensor_norm="paper").state_dict()
    assert list(first) == list(normed)
    for name, value in first.items():
        assert torch.equal(value, again[name])
        assert torch.equal(value, normed[name])
    other = seeded(seed=1).state_dict()
    assert not torch.equal(first["backbone.stem.conv.weight"], other["backbone.stem.conv.weight"])


@pytest.mark.parametrize("name", ["resnet18", "wrn16_2"])
def test_weights_are_he_initialised(name: str) -> None:
    for module in seeded(name).modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            fan_in = module.weight[0].numel()
            deviation = math.sqrt(2 / fan_in)
            tolerance = 5 * deviation / math.sqrt(2 * module.weight.numel())
            assert module.weight.std().item() == pytest.approx(deviation, abs=tolerance)
            assert module.bias is None or not module.bias.any()
        if isinstance(module, nn.BatchNorm2d):
            assert (module.weight == 1).all()
            assert not module.bias.any()


def test_tensor_norm_follows_every_relu() -> None:
    """At each of the 33 places of a ResNet-34 the output has mean zero over channels."""
    model, means = seeded("resnet34", tensor_norm="paper"), []

    def look(module: nn.Module, inputs: Any, output: Tensor) -> None:
        means.append(output.mean(1).abs().max().item() / output.abs().max().item())

    handles = [
        module.register_forward_hook(look)
        for module in model.modules()
        if isinstance(module, ReLUTensorNorm)
    ]
    model.eval()(torch.rand(2, 3, 16, 16))
    for handle in handles:
        handle.remove()
    assert len(means) == 33
    assert max(means) < 1e-5


def test_saved_weights_give_the_same_function() -> None:
    model = seeded(tensor_norm="paper").eval()
    images = torch.rand(2, 3, 8, 8)
    torch.manual_seed(9)
    loaded = create_model("wrn10_1", 10, tensor_norm="paper", mean=(0, 0, 0)).eval()
    loaded.load_state_dict(load(save(model.state_dict())))
    assert torch.equal(loaded(images), model(images))


def test_backward_of_a_loaded_model_can_be_switched() -> None:
    model = seeded(tensor_norm="paper").eval()
    images = torch.rand(2, 3, 8, 8, dtype=torch.float64, requires_grad=True)
    model = model.double()

    def gradient() -> Tensor:
        return torch.autograd.grad(model(images)[:, 0].sum(), images)[0]

    paper = gradient()
    exact = (set_backward(model, "exact"), gradient())[1]
    direction = torch.randn_like(images)
    with torch.no_grad():
        step = 1e-6
        ahead, behind = model(images + step * direction), model(images - step * direction)
    slope = ((ahead - behind)[:, 0].sum() / (2 * step)).item()
    assert (exact * direction).sum().item() == pytest.approx(slope, rel=1e-4)
    assert (paper * direction).sum().item() != pytest.approx(slope, rel=1e-2)
    set_backward(model, "paper").float()


def test_a_network_of_ones_own_is_one_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    def mine(num_classes: int, stem: str) -> nn.Module:
        layers = (nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        return nn.Sequential(*layers, nn.Linear(4, num_classes))

    monkeypatch.setitem(MODELS, "mine", mine)
    model = create_model("mine", 5, tensor_norm="exact")
    assert relus(model) == 1
    assert model(torch.rand(2, 3, 8, 8)).shape == (2, 5)


BAD: list[tuple[Callable[[], object], str]] = [
    (lambda: create_model("resnet43", 10), "name: no network 'resnet43'; did you mean .*resnet34"),
    (lambda: create_model("qqqqqqqq", 10), "name: no network 'qqqqqqqq'; see timm"),
    (lambda: create_model("wrn27_10", 10), "name: wrn27_10 is no WideResNet; the depth is 10, 16"),
    (lambda: create_model("wrn10_1", 0), "num_classes: "),
    (lambda: create_model("wrn10_1", 10, stem="tiny"), "stem: .*'tiny'"),  # type: ignore[arg-type]
    (lambda: create_model("regnetx_002", 10), "stem: 'cifar' .* regnetx_002; use stem='imagenet'"),
    (lambda: create_model("wrn10_1", 10, tensor_norm="no"), "backward: .*'no'"),  # type: ignore[arg-type]
    (lambda: create_model("wrn10_1", 10, mean=(1, 2)), "mean: expected three"),
    (lambda: on_meta("efficientnet_b0", tensor_norm="paper"), "model: .*no nn.ReLU"),
    (lambda: Normalize()(torch.zeros(1, 3, 2, 2, dtype=torch.uint8)), r"x: .*\[0, 1\].*uint8"),
    (lambda: Normalize()(torch.zeros(1, 1, 2, 2)), r"x: .*\[N, 3, H, W\].*\[1, 1, 2, 2\]"),
]


@pytest.mark.parametrize(("call", "message"), BAD)
def test_bad_input_is_named(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
