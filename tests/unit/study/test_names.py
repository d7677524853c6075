"""Names as the paper writes them."""

import pytest

from tnfdt.study.names import (
    dataset_name,
    duration,
    epsilon_name,
    method_name,
    model_name,
    row_name,
)


def test_datasets():
    names = {"c10": "C10", "c100": "C100", "fmnist": "F-MNIST", "svhn": "SVHN", "my_set": "my_set"}
    assert {key: dataset_name(key) for key in names} == names


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("resnet34", "ResNet-34"),
        ("resnet152", "ResNet-152"),
        ("wrn28_10", "WideResNet-28-10"),
        ("wrn10_1", "WideResNet-10-1"),
        ("resnet34_x", "resnet34_x"),
        ("vit_tiny", "vit_tiny"),
    ],
)
def test_models(model, name):
    assert model_name(model) == name


@pytest.mark.parametrize(
    ("method", "first", "second"),
    [
        ("vanilla", "ResNet-34", "ResNet-34"),
        ("ov", "ResNet-34 & OV", "ResNet-34 & OV"),
        ("tn_fdt", "ResNet-34 & TN & FDT", "ResNet-34 & FDT & TN"),
        ("my_method", "ResNet-34 & my_method", "ResNet-34 & my_method"),
    ],
)
def test_rows_of_the_two_tables(method, first, second):
    assert row_name("resnet34", method) == first
    assert row_name("resnet34", method, "table2") == second


def test_methods_alone_keep_the_name_vanilla():
    assert method_name("vanilla") == "vanilla"
    assert method_name("tn_fdt") == "TN & FDT"
    assert method_name("other") == "other"


@pytest.mark.parametrize(
    ("epsilon", "name"), [(0.1, "ε=10⁻¹"), (0.0001, "ε=10⁻⁴"), (1.0, "ε=10⁰"), (0.03, "ε=0.03")]
)
def test_epsilons(epsilon, name):
    assert epsilon_name(epsilon) == name


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (1.52, "1.5 s"),
        (45, "45 s"),
        (119, "119 s"),
        (720, "12 min"),
        (3600, "1.0 h"),
        (2e5, "2.3 days"),
    ],
)
def test_durations(seconds, text):
    assert duration(seconds) == text
