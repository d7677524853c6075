"""Stage 3 for one cell: attacks a trained network at one epsilon and writes its files.

The work goes batch by batch through a partial file, so that an attack killed at any instant
goes on where it was and ends with the same bytes.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from tnfdt import devices
from tnfdt.attack.batches import Attack, Partial, in_batches
from tnfdt.attack.pgd import accuracies, check_epsilon
from tnfdt.attack.trajectory import Trajectory, pgd_trajectory
from tnfdt.core.seeding import generator
from tnfdt.data.prepared import load
from tnfdt.files.atomic import Array, Arrays, read_json, sha256_file, write_json, write_npz
from tnfdt.files.clean_answers import read_clean
from tnfdt.files.provenance import provenance
from tnfdt.files.records import SCHEMA, Record, cell_of
from tnfdt.models import create_model, set_backward
from tnfdt.study.attack_settings import with_precision
from tnfdt.study.paths import CLEAN, PARTIAL, RECORD, WEIGHTS, attack_names, epsilon_stem
from tnfdt.study.schema import UserError
from tnfdt.study.study import Slice, digest

ARRAYS = ("correct", "loss", "gradient_norm", "predictions")  # kept of a trajectory
_CURVES = {"correct": "curve", "loss": "loss", "gradient_norm": "gradient_norm"}


@dataclass(frozen=True, kw_only=True)
class Target:
    """A trained network with the images it is attacked on, both on their device."""

    model: nn.Module
    record: Record  # of the training
    images: Tensor  # uint8 [N, C, H, W]
    labels: Tensor  # int64 [N]
    indices: Tensor  # int64 [N], positions in the prepared test set
    count: int  # M, the images of that set
    num_classes: int
    precision: str  # of the attack

    def batch(self, part: slice) -> tuple[Tensor, Tensor]:
        """Pixels in [0, 1] in the memory format that is fastest, and labels."""
        pixels = self.images[part].float().div(255)
        layout = devices.memory_format(pixels.device, self.precision)
        return pixels.contiguous(memory_format=layout), self.labels[part]


def run(
    *,
    out: Path,
    train_dir: Path,
    data_dir: Path,
    epsilon: float,
    config: Slice,
    device: torch.device,
    identity: Record,
    progress: bool,
) -> Record:
    """Attack one cell at one epsilon into `out`; the record comes last."""
    check_epsilon(epsilon)
    config = with_precision(config)
    target = load_target(train_dir, data_dir, config, device)
    if "gradient" in config:  # another than the network was trained with
        set_backward(target.model, config["gradient"])
    clean = _clean(train_dir / CLEAN, target)
    started, name = time.time(), epsilon_stem(epsilon)
    attack = _pgd(target.model, epsilon, config, identity["seed"])
    key = digest({**config, **identity, "epsilon": epsilon, **made_from(target)})
    title = f"{cell_of(identity).path} {name}" if progress else None
    partial = Partial(out / f"{name}{PARTIAL}", key, ARRAYS)
    in_batches(attack, target.batch, len(target.labels), config["batch_size"], partial, title)
    metrics = {"clean_accuracy": float(clean.mean()), **_metrics(partial)}
    head = {"schema": SCHEMA, "stage": "attack", **identity, "epsilon": epsilon}
    record = head | make_record(target, config, metrics, started)
    to_record, to_array = (out / file for file in attack_names(epsilon))
    write_npz(to_array, {"correct": partial.arrays["correct"], "indices": target.indices.numpy()})
    write_json(to_record, record)
    partial.path.unlink(missing_ok=True)
    return record


def _pgd(model: nn.Module, epsilon: float, config: Slice, seed: int) -> Attack:
    """The paper's attack on a batch whose first image is number `first` of all."""

    def attack(images: Tensor, labels: Tensor, first: int) -> Arrays:
        trajectory = pgd_trajectory(
            model,
            images,
            labels,
            epsilon,
            steps=config["steps"],
            rel_stepsize=config["rel_stepsize"],
            random_start=config["random_start"],
            generator=generator(seed, f"attack/{epsilon_stem(epsilon)}/{first}"),
        )
        return to_arrays(trajectory)

    return attack


def _metrics(partial: Partial) -> Record:
    arrays = partial.arrays
    means = {name: arrays[name].mean(1, dtype=np.float64).tolist() for name in _CURVES}
    curves = {_CURVES[name]: curve for name, curve in means.items()}
    return {**accuracies(arrays["correct"]), **curves, "duration_seconds": partial.seconds}


def _clean(path: Path, target: Target) -> Array:
    """Which of the target's images the trained network classifies right, bool [N]."""
    correct = read_clean(path)
    if len(correct) != target.count:
        raise UserError(f"{path} is not of the {target.count} test images; train the cell again")
    chosen: Array = correct[target.indices.numpy()]
    return chosen


def load_model(train_dir: Path) -> tuple[nn.Module, Record]:
    """The network of a finished training, rebuilt from its own record, in evaluation mode."""
    path, weights = train_dir / RECORD, train_dir / WEIGHTS
    record = read_json(path)
    try:
        config, expected = record["config"], record["model_sha256"]
        record["dataset_fingerprint"], record["interpretation"]
        options = {name: config[name] for name in ("stem", "tensor_norm", "mean")}
        model = create_model(config["model"], config["num_classes"], **options)
    except Exception as error:  # whatever a wrong value makes the network's library raise
        raise UserError(f"{path} does not describe a network ({error}); train again") from None
    state = _read_weights(weights)
    _check_state(weights, state, model.state_dict(), config)
    if sha256_file(weights) != expected:
        raise UserError(f"{weights} is not the file its record.json was written for; train again")
    model.load_state_dict(state)
    return model.eval(), record


def _read_weights(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except Exception as error:  # whatever a damaged file makes safetensors raise
        raise UserError(f"{path} cannot be read ({error}); train the cell again") from None


def _check_state(
    path: Path, found: dict[str, Tensor], expected: dict[str, Tensor], config: Slice
) -> None:
    """The weights fit the network: the same names, the same shapes, the same classes."""
    there = {key: tuple(value.shape) for key, value in found.items()}
    wanted = {key: tuple(value.shape) for key, value in expected.items()}
    differ = sorted({key for key, _ in there.items() ^ wanted.items()})
    if not differ:
        return
    if there.keys() == wanted.keys() and wanted[differ[0]][:1] == (config["num_classes"],):
        what = f"of {sum(there[differ[0]][:1])} classes, its record says {config['num_classes']}"
    else:
        what = f"not of a {config['model']} as its record says ({differ[0]} differs)"
    raise UserError(f"{path} is {what}; train the cell again")


def load_target(train_dir: Path, data_dir: Path, config: Slice, device: torch.device) -> Target:
    """The trained network and its test images, held against each other.

    From here on the device computes in the precision of the attack, not of the training.
    """
    model, record = load_model(train_dir)
    images = load(data_dir, verify=True)
    if record["dataset_fingerprint"] != images.fingerprint:
        raise UserError(
            f"{data_dir} is not the data that {train_dir} was trained on: fingerprint "
            f"{images.fingerprint[:12]}, not {str(record['dataset_fingerprint'])[:12]}; train again"
        )
    indices = choose_images(len(images.test_y), config["limit"])
    if len(indices) == 0:
        raise UserError(f"{data_dir} has no test images to attack; prepare a set that has some")
    devices.set_precision(config["precision"])
    layout = devices.memory_format(device, config["precision"])
    return Target(
        model=model.to(device).to(memory_format=layout),
        record=record,
        images=images.test_x[indices].to(device),
        labels=images.test_y[indices].to(device),
        indices=indices,
        count=len(images.test_y),
        num_classes=images.num_classes,
        precision=config["precision"],
    )


def choose_images(count: int, limit: int | None) -> Tensor:
    """Positions of the attacked images, ascending: all, or a choice that no cell influences."""
    if limit is None or limit >= count:
        return torch.arange(count)
    order = torch.randperm(count, generator=generator(0, "limit/attack"))
    return order[:limit].sort().values


def to_arrays(trajectory: Trajectory) -> Arrays:
    """What is kept of a trajectory, the images along the last axis."""
    return {name: getattr(trajectory, name).numpy(force=True) for name in ARRAYS}


def made_from(target: Target) -> Record:
    """The files an attack was made from, by content."""
    return {key: target.record[key] for key in ("model_sha256", "dataset_fingerprint")}


def make_record(target: Target, config: Slice, metrics: Record, started: float) -> Record:
    """What the records of attack and audit have in common, but for their identity."""
    made, device = provenance(), devices.describe(target.labels.device)
    hardware = {**made["hardware"], "device": device, "threads": torch.get_num_threads()}
    return {
        "images": len(target.labels),
        "metrics": metrics,
        "config": config,
        "interpretation": {**target.record["interpretation"], **_reading(config)},
        **made,
        "hardware": hardware,
        **made_from(target),
        "started": started,
    }


def _reading(config: Slice) -> Record:
    """How the attack reads the paper, which need not be how the training did."""
    gradient = {"attack_gradient": config["gradient"]} if "gradient" in config else {}
    return {"random_start": config["random_start"], **gradient}
