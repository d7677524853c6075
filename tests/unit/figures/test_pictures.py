"""Figures with images: a blend taken apart, and activations before and after."""

import numpy as np
import pytest
import torch
from torch import nn

from tnfdt.core.full_distribution import harmonic_factors
from tnfdt.core.tensor_norm import ReLUTensorNorm, insert_tensor_norm, tensor_norm
from tnfdt.figures.pictures import activations, blends, draw_sample, picture, watch_layers


@pytest.fixture
def images():
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (60, 3, 8, 8), dtype=torch.uint8, generator=generator)


LABELS = torch.arange(60) % 6


@pytest.mark.parametrize("amount", [1, 2, 5, 6])
def test_a_sample_is_the_weighted_sum_of_its_parts(images, amount):
    sample = draw_sample(images, LABELS, 6, amount, torch.Generator().manual_seed(1))
    assert len(sample.parts) == amount
    assert sample.weights == pytest.approx(harmonic_factors(amount).tolist())
    total = sum(w * part for w, part in zip(sample.weights, sample.parts, strict=True))
    assert sample.blend == pytest.approx(total, abs=1e-5)
    assert sorted(sample.target[sample.target > 0]) == pytest.approx(sorted(sample.weights))
    assert len(sample.target) == 6


def test_the_target_names_the_classes_of_the_parts(images):
    sample = draw_sample(images, LABELS, 6, 3, torch.Generator().manual_seed(2))
    everything = [picture(image) for image in images]
    for weight, part in zip(sample.weights, sample.parts, strict=True):
        (place,) = [i for i, other in enumerate(everything) if np.array_equal(other, part)]
        assert sample.target[LABELS[place]] == pytest.approx(weight)


def test_grey_images_get_three_channels():
    assert picture(torch.full((1, 4, 4), 255, dtype=torch.uint8)).shape == (4, 4, 3)


def test_the_blend_figure_has_a_row_a_sample(images):
    generator = torch.Generator().manual_seed(0)
    samples = [draw_sample(images, LABELS, 6, amount, generator) for amount in (1, 3)]
    figure = blends(samples)
    assert len(figure.axes) == 2 * (3 + 2)


def network():
    torch.manual_seed(0)  # with some weights a layer of four channels is dead
    layers = [nn.Conv2d(3, 4, 3), nn.ReLU(inplace=True), nn.Conv2d(4, 4, 3), nn.ReLU()]
    return insert_tensor_norm(nn.Sequential(*layers))


def test_activations_are_those_of_the_network(images):
    model = network()
    inputs = images[:4].float() / 255
    first, last = watch_layers(model, inputs, wanted=2)
    before = torch.relu(model[0](inputs))
    assert first.before == pytest.approx(before.flatten().detach().numpy(), abs=1e-6)
    assert first.after == pytest.approx(tensor_norm(before).flatten().detach().numpy(), abs=1e-6)
    assert first.means == pytest.approx(before.mean(1)[0].detach().numpy(), abs=1e-6)
    assert (first.number, last.number) == (1, 2)
    assert not any(module._forward_pre_hooks for module in model.modules())


def test_tensor_normalization_leaves_a_mean_of_zero(images):
    for layer in watch_layers(network(), images[:4].float() / 255):
        assert layer.before.mean() > 0
        assert layer.after.mean() == pytest.approx(0, abs=1e-9)


def test_the_activation_figure_is_drawn(images):
    layers = watch_layers(network(), images[:4].float() / 255)
    figure = activations(layers, picture(images[0]))
    titles = [axis.get_title() for axis in figure.axes]
    assert any("skewness" in title for title in titles)


def test_a_single_layer_is_shown_once(images):
    model = nn.Sequential(nn.Conv2d(3, 4, 3), ReLUTensorNorm())
    assert len(watch_layers(model, images[:2].float() / 255)) == 1
