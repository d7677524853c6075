"""What a training leaves: weights, answers to the test images, history, as files."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from safetensors.torch import save

from tnfdt.files.atomic import atomic_path, write_npz
from tnfdt.train import recipe
from tnfdt.train.recipe import Row, Trainer, predictions


def write_network(trainer: Trainer, weights: Path, clean: Path) -> float:
    """Store the network as it is and its answers to all test images; returns its accuracy."""
    state = trainer.model.state_dict().items()
    with atomic_path(weights) as temporary:
        temporary.write_bytes(save({key: item.cpu().contiguous() for key, item in state}))
    answers = predictions(trainer.model, trainer.data.test_x).numpy(force=True)
    correct = answers == trainer.data.test_y.numpy(force=True)
    write_npz(clean, {"correct": correct, "predictions": answers.astype(np.int16)})
    return int(correct.sum()) / len(correct)


def write_history(path: Path, history: Sequence[Row]) -> None:
    with atomic_path(path) as temporary, temporary.open("w", newline="") as file:
        writer = csv.DictWriter(file, recipe.HISTORY, lineterminator="\n")
        writer.writeheader()
        writer.writerows(history)
