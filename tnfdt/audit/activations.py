"""How often tensor normalization makes an activation larger: the paper's |D*| ≤ |D|, counted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor, nn

from tnfdt.attack.cell import load_model
from tnfdt.core.tensor_norm import ReLUTensorNorm
from tnfdt.data.prepared import load
from tnfdt.files.atomic import write_json
from tnfdt.files.records import Record
from tnfdt.study.paths import Cell, StudyPaths
from tnfdt.study.products import measured_cells
from tnfdt.study.study import Study

IMAGES = 100  # test images of each network: tens of millions of activations
SCHEMA = 1


def enlarged(model: nn.Module, images: Tensor) -> tuple[int, int]:
    """Outputs D of rectifiers with |D − M| > |D|, and all of them; images [N, C, H, W] in 0..1.

    D and its mean M over channels are not negative, so that this is D < M / 2.
    """
    larger = total = 0

    def count(_module: nn.Module, args: tuple[Tensor, ...]) -> None:
        nonlocal larger, total
        output = torch.relu(args[0])
        larger += int((output < output.mean(1, keepdim=True) / 2).sum())
        total += output.numel()

    layers = [module for module in model.modules() if isinstance(module, ReLUTensorNorm)]
    handles = [layer.register_forward_pre_hook(count) for layer in layers]
    with torch.inference_mode():
        model.eval()(images)
    for handle in handles:
        handle.remove()
    return larger, total


def measure(study: Study, folder: Path) -> Path | None:
    """Count in every measured cell whose weights are there; writes nothing if none are."""
    paths = StudyPaths(folder)
    cells = dict(_counted(study, paths))
    if not cells:
        return None
    write_json(paths.activations, {"schema": SCHEMA, "images": IMAGES, "cells": cells})
    return paths.activations


def _counted(study: Study, paths: StudyPaths) -> Iterator[tuple[str, Record]]:
    for cell in measured_cells(study):
        needed = (paths.weights(cell), paths.record(cell), paths.manifest(cell.dataset))
        if all(path.is_file() for path in needed):
            yield cell.path, _count(cell, paths)


def _count(cell: Cell, paths: StudyPaths) -> Record:
    model, record = load_model(paths.train(cell))
    images = load(paths.data(cell.dataset)).test_x[:IMAGES].float() / 255
    larger, total = enlarged(model, images)
    # Four digits: the last bits of an activation differ between processors.
    return {
        "share": round(larger / total, 4),
        "activations": total,
        "model_sha256": record["model_sha256"],
    }
