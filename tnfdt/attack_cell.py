"""Stage 3 at the edge: one trained cell under one epsilon, restartable batch by batch."""

from __future__ import annotations

import io
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from tnfdt import data, devices
from tnfdt.attack import accuracies, check_epsilon, pgd_trajectory
from tnfdt.config import Cell, Slice, UserError, digest, format_epsilon
from tnfdt.models import create_model
from tnfdt.progress import Progress
from tnfdt.records import SCHEMA, Record, atomic_path, provenance, read_record, sha256_file
from tnfdt.records import write_json as write_record
from tnfdt.seeding import derive, generator
from tnfdt.train import predictions

Arrays = dict[str, npt.NDArray[Any]]

_SAVE_SECONDS = 60.0


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
    """Attack the model in `train_dir` and write eps{epsilon}.npz, .json and clean.npz to `out`."""
    check_epsilon(epsilon)
    begin = time.monotonic()
    model, trained = load_model(train_dir, identity)
    images = data.load(data_dir, device)
    check_fingerprint(trained, images, train_dir)
    layout = devices.memory_format(device, "tf32")
    model = model.to(device, memory_format=layout)  # type: ignore[call-overload]
    chosen = attacked_images(len(images.test_y), config["limit"])
    stem = f"eps{format_epsilon(epsilon)}"
    partial = Partial(out / f"{stem}.partial", digest({**config, "m": trained["model_sha256"]}))
    results = _attack(model, images, chosen, epsilon, config, partial, identity, progress)
    clean = predictions(model, images.test_x).cpu()
    write_npz(
        out / "clean.npz",
        predictions=clean.to(torch.int16).numpy(),
        correct=(clean == images.test_y.cpu()).numpy(),
    )
    write_npz(out / f"{stem}.npz", correct=results["correct"], indices=chosen.numpy())
    record = _record(results, trained, config, identity, time.monotonic() - begin)
    record["hardware"] = {**record["hardware"], "device": devices.describe(device)}
    write_record(out / f"{stem}.json", record)
    partial.remove()
    return record


def load_model(train_dir: Path, identity: Record) -> tuple[nn.Module, Record]:
    """The network of a finished training and its record, checked against each other."""
    cell = Cell(identity["dataset"], identity["model"], identity["method"], identity["seed"])
    path, weights = train_dir / "record.json", train_dir / "model.safetensors"
    record = read_record(path, stage="train", study=identity["study"], cell=cell)
    if not weights.exists():
        raise UserError(f"{weights} does not exist; train the cell again")
    if sha256_file(weights) != record["model_sha256"]:
        raise UserError(f"{weights} is not the file that {path} describes; train the cell again")
    made = record["config"]
    model = create_model(
        made["model"],
        made["num_classes"],
        stem=made["stem"],
        tensor_norm=made["tensor_norm"],
        mean=made["mean"],
    )
    try:
        model.load_state_dict(load_file(weights))
    except (RuntimeError, SafetensorError):
        kind = f"{made['model']} with {made['num_classes']} classes"
        raise UserError(f"{weights} does not hold a {kind}; train the cell again") from None
    return model.eval(), record


def check_fingerprint(trained: Record, images: data.ImageSet, train_dir: Path) -> None:
    """A network is attacked on the test images of the very set it was trained on."""
    if trained["dataset_fingerprint"] != images.fingerprint:
        raise UserError(
            f"{train_dir}: trained on another copy of {trained['dataset']} "
            f"({trained['dataset_fingerprint'][:12]}) than is prepared now "
            f"({images.fingerprint[:12]}); train the cell again"
        )


def attacked_images(count: int, limit: int | None) -> Tensor:
    """Positions of the attacked test images, ascending; the same for every method and seed."""
    if limit is None or limit >= count:
        return torch.arange(count)
    drawn = torch.randperm(count, generator=generator(0, "limit/attack"))[:limit]
    return drawn.sort().values


def _attack(
    model: nn.Module,
    images: data.ImageSet,
    chosen: Tensor,
    epsilon: float,
    config: Slice,
    partial: Partial,
    identity: Record,
    progress: bool,
) -> Arrays:
    """Results of all batches, [T, N] each; batches that `partial` has are not done again."""
    parts = partial.load()
    batches = chosen.split(config["batch_size"])
    name = f"{identity['dataset']}/{identity['model']}/{identity['method']}/eps{epsilon:g}"
    bar = Progress(name, len(batches), len(parts), quiet=not progress)
    saved = time.monotonic()
    for number in range(len(parts), len(batches)):
        parts.append(_attack_batch(model, images, batches[number], epsilon, config, identity))
        bar.advance()
        if time.monotonic() - saved > _SAVE_SECONDS:
            partial.save(parts)
            saved = time.monotonic()
    bar.close()
    return {key: np.concatenate([part[key] for part in parts], axis=1) for key in parts[0]}


def _attack_batch(
    model: nn.Module,
    images: data.ImageSet,
    batch: Tensor,
    epsilon: float,
    config: Slice,
    identity: Record,
) -> Arrays:
    device = images.test_x.device
    pixels = images.test_x[batch.to(device)].float() / 255
    stream = f"attack/{epsilon:g}/{int(batch[0])}"
    trajectory = pgd_trajectory(
        model,
        pixels.contiguous(memory_format=devices.memory_format(device, "tf32")),
        images.test_y[batch.to(device)],
        epsilon,
        steps=config["steps"],
        rel_stepsize=config["rel_stepsize"],
        random_start=config["random_start"],
        generator=torch.Generator().manual_seed(derive(identity["seed"], stream)),
    )
    return {
        "correct": trajectory.correct.cpu().numpy(),
        "clean": trajectory.clean.cpu().numpy()[None],
        "loss": trajectory.loss.cpu().numpy(),
        "gradient_norm": trajectory.gradient_norm.cpu().numpy(),
    }


def _record(
    results: Arrays, trained: Record, config: Slice, identity: Record, seconds: float
) -> Record:
    correct = results["correct"]
    return {
        "schema": SCHEMA,
        "stage": "attack",
        **identity,
        "epsilon": config["epsilon"],
        "images": correct.shape[1],
        "metrics": {
            "clean_accuracy": float(results["clean"].mean()),
            **accuracies(correct),
            "curve": correct.mean(1).tolist(),
            "loss": results["loss"].mean(1, dtype=np.float64).tolist(),
            "gradient_norm": results["gradient_norm"].mean(1, dtype=np.float64).tolist(),
            "duration_seconds": seconds,
        },
        "config": config,
        "interpretation": trained["interpretation"],
        "model_sha256": trained["model_sha256"],
        "dataset_fingerprint": trained["dataset_fingerprint"],
        **provenance(),
    }


def write_npz(path: Path, **arrays: npt.NDArray[Any]) -> None:
    """Write arrays compressed and atomically; equal arrays give equal bytes."""
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)


class Partial:
    """Batches that an attack has done so far, kept so that a killed one can go on."""

    def __init__(self, path: Path, identity: str) -> None:
        self.path, self.identity = path, identity

    def save(self, parts: list[Arrays]) -> None:
        arrays = {f"{i}/{key}": value for i, part in enumerate(parts) for key, value in part.items()}
        write_npz(self.path, identity=np.array(self.identity), **arrays)

    def load(self) -> list[Arrays]:
        """The batches done, or none (with a line on stderr) if the file is no use here."""
        if not self.path.exists():
            return []
        try:
            with np.load(io.BytesIO(self.path.read_bytes()), allow_pickle=False) as stored:
                arrays = dict(stored)
        except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile) as error:
            return self._useless(f"cannot be read ({type(error).__name__})")
        if str(arrays.pop("identity", "")) != self.identity:
            return self._useless("belongs to another attack")
        parts: dict[int, Arrays] = {}
        for name, value in arrays.items():
            number, _, key = name.partition("/")
            parts.setdefault(int(number), {})[key] = value
        return [parts[number] for number in sorted(parts)]

    def _useless(self, reason: str) -> list[Arrays]:
        print(f"{self.path} {reason}; the attack starts over", file=sys.stderr, flush=True)
        return []

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)
