"""Tensor normalization in a ResNet-34: what it costs in memory and in time."""

from __future__ import annotations

from functools import partial
from time import process_time

import torch
from torch import Tensor, nn

from benchmarks.ratios import Row, interleaved
from tnfdt.core.losses import multi_class_log_loss
from tnfdt.models import create_model

BATCH = 8


def main() -> list[Row]:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    images, classes = torch.rand(BATCH, 3, 32, 32), torch.randint(10, (BATCH,))
    plain, normed = (create_model("resnet34", 10, tensor_norm=tn) for tn in (None, "paper"))
    memory = saved_bytes(normed, images) / saved_bytes(plain, images)
    seconds = interleaved(
        partial(step, plain, images, classes),
        partial(step, normed, images, classes),
        repeats=21,
        clock=process_time,
    )
    return [
        Row.at_most("bytes saved for backward, ResNet-34 with TN / without", memory, 1.01),
        Row.at_most("CPU seconds of a training step, ResNet-34 with TN / without", seconds, 1.05),
    ]


def step(model: nn.Module, images: Tensor, classes: Tensor) -> None:
    """Forward and backward pass; the optimizer does the same work with and without TN."""
    model.zero_grad()
    torch.autograd.backward(multi_class_log_loss(model(images), classes))


def saved_bytes(model: nn.Module, images: Tensor) -> int:
    """Bytes of the distinct storages that autograd keeps for the backward pass of `model`."""
    storages: dict[int, torch.UntypedStorage] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        storages[storage.data_ptr()] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        model(images)
    weights = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    return sum(storage.nbytes() for key, storage in storages.items() if key not in weights)
