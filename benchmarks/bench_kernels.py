"""Operators per training step of ResNet-34 on the pretended device: each would be a kernel."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from benchmarks.ratios import Row

contract: Any = import_module("tests.unit.test_gpu_contract")  # by name: tests are not typed


def main() -> list[Row]:
    return [
        Row.at_most(f"aten kernels per step, {method}", _kernels(method), bound)
        for method, bound in (("fdt", 335), ("vanilla", 330))
    ]


def _kernels(method: str) -> int:
    config = contract.config_of(method, model="resnet34")
    steps, _ = contract.steps_on_gpu(config, 10, values=False)
    return sum(steps[-1][2].values())
