"""How much work a study is: images, floating-point operations and bytes of each job.

Operations are counted by torch on the meta device, where a network has shapes but no numbers:
convolutions and matrix products, a multiplication and an addition each.
"""

from __future__ import annotations

import operator
import zipfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

from tnfdt.data.registry import DATASETS, Images
from tnfdt.study.machine import Machine
from tnfdt.study.methods import Method
from tnfdt.study.paths import Cell
from tnfdt.study.schema import UserError
from tnfdt.study.study import Study

STAGES = ("train", "attack", "audit")
_BLACK_BOX_PASSES = 2500  # of the audit's attack by decisions alone, an image


class ModelCost(NamedTuple):
    """Operations per image of a forward pass, of a step of SGD and of a step of PGD."""

    forward: float
    learn: float
    attack: float
    parameters: int


class Work(NamedTuple):
    """Operations of one job, by kind of pass."""

    forward: float
    learn: float
    attack: float

    @property
    def total(self) -> float:
        return self.forward + self.learn + self.attack


@dataclass(frozen=True, kw_only=True)
class Job:
    """One process that Snakemake starts: a training, an attack at one epsilon, or an audit."""

    stage: str
    cell: Cell
    work: Work
    output: str  # the record below the study's folder that says that it is done


def images_of(study: Study, machine: Machine, dataset: str) -> Images:
    """The images of a dataset: as prepared, as in its .npz, or as published, within the limit."""
    manifest = Path(machine.results_dir, study.name, "data", dataset, "manifest.json")
    if manifest.is_file():
        return _prepared(manifest)
    path = study.dataset_path(dataset, machine)
    if path is not None:
        found = _in_npz(Path(path))
    elif dataset in DATASETS:
        found = DATASETS[dataset].images
    else:
        raise UserError(f"dataset {dataset} of study {study.name} is not known; give its path")
    return found._replace(
        train=min(found.train, study.limit.train or found.train),
        test=min(found.test, study.limit.test or found.test),
    )


def _prepared(path: Path) -> Images:
    from tnfdt.files.atomic import read_json

    manifest = read_json(path)
    try:
        train, test = (manifest["arrays"][key]["shape"] for key in ("train_x", "test_x"))
        found = (train[0], test[0], train[2], train[3], manifest["num_classes"])
        return Images(*map(operator.index, found))
    except (KeyError, TypeError, IndexError):
        raise UserError(f"{path} is not a manifest; delete the folder and run again") from None


def _in_npz(path: Path) -> Images:
    """Shapes from the headers of an .npz: the pixels are not read."""
    import numpy as np

    try:
        with np.load(path, allow_pickle=False) as file:
            classes = int(file["train_y"].max()) + 1
        train, test = (_shape(path, key) for key in ("train_x", "test_x"))
        return Images(train[0], test[0], train[1], train[2], classes)
    except Exception as error:  # whatever a damaged file makes numpy, zipfile and zlib raise
        raise UserError(f"{path} cannot be used as a dataset ({error}); write it again") from None


def _shape(path: Path, key: str) -> tuple[int, ...]:
    from numpy.lib import format as npy

    with zipfile.ZipFile(path) as archive, archive.open(f"{key}.npy") as file:
        version = npy.read_magic(file)
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape: tuple[int, ...] = read(file)[0]
        return shape


@cache
def model_cost(model: str, stem: str, classes: int, height: int, width: int) -> ModelCost:
    """Operations per image and parameters of a network, from torch's counter."""
    import torch

    from tnfdt.models import create_model

    with torch.device("meta"):
        try:
            network = create_model(model, classes, stem=cast(Literal["cifar", "imagenet"], stem))
        except ValueError as error:
            raise UserError(f"network {model}: {error}") from None
        images = torch.empty(2, 3, height, width)
    parameters = sum(item.numel() for item in network.parameters())
    learn = _count(network, images)
    forward = _count(network.eval(), images, backward=False)
    attack = _count(network.requires_grad_(False), images.requires_grad_())
    return ModelCost(forward, learn, attack, parameters)


def _count(network: Any, images: Any, *, backward: bool = True) -> float:
    """Operations per image of a forward pass, and of the backward pass to what needs it."""
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        logits = network(images)
        if backward:
            logits.sum().backward()
    return float(counter.get_total_flops()) / len(images)


def cost_of(study: Study, machine: Machine, cell: Cell) -> tuple[Images, ModelCost]:
    """The images and the network of a cell."""
    images = images_of(study, machine, cell.dataset)
    stem = study.reading(cell.method)["stem"]
    cost = model_cost(cell.model, stem, images.classes, images.height, images.width)
    return images, cost


def jobs_of(study: Study, machine: Machine) -> list[Job]:
    """Every training, attack and audit that the target `all` runs, trainings first."""
    from tnfdt.study.paths import format_epsilon

    kinds = {(cell.dataset, cell.model, cell.method): cell for cell in study.cells}
    works = {key: _works(study, machine, cell) for key, cell in kinds.items()}
    jobs = []
    for cell in study.cells:
        train, attack, _ = works[cell[:3]]
        path = f"train/{cell.path}/record.json"
        jobs.append(Job(stage="train", cell=cell, work=train, output=path))
        for epsilon in study.attack.epsilons:
            path = f"attack/{cell.path}/eps{format_epsilon(epsilon)}.json"
            jobs.append(Job(stage="attack", cell=cell, work=attack, output=path))
    for cell in study.audited() if study.audit.include else []:
        path = f"audit/{cell.path}/audit.json"
        jobs.append(Job(stage="audit", cell=cell, work=works[cell[:3]][2], output=path))
    return sorted(jobs, key=lambda job: STAGES.index(job.stage))


def count_text(study: Study) -> str:
    """The jobs of a study in words."""
    cells, audits = len(study.cells), len(study.audited()) if study.audit.include else 0
    text = f"{cells} trainings, {cells * len(study.attack.epsilons)} attacks"
    return f"{text}, {audits} audits" if audits else text


def _works(study: Study, machine: Machine, cell: Cell) -> tuple[Work, Work, Work]:
    """Operations of a training, of an attack at one epsilon and of an audit."""
    (images, cost), epochs = cost_of(study, machine, cell), study.training.epochs
    attacked = min(study.attack.limit or images.test, images.test)
    audited = min(study.audit.limit or images.test, images.test) * study.attack.steps
    backward, forward = _audit_steps(study, study.methods[cell.method])
    decided = _BLACK_BOX_PASSES * min(study.audit.black_box, study.audit.limit or images.test)
    return (
        Work(epochs * images.test * cost.forward, epochs * images.train * cost.learn, 0.0),
        Work(
            (attacked + images.test) * cost.forward,
            0.0,
            attacked * study.attack.steps * cost.attack,
        ),
        Work((audited * forward + decided) * cost.forward, 0.0, audited * backward * cost.attack),
    )


def _audit_steps(study: Study, method: Method) -> tuple[int, int]:
    """Runs of PGD's length in an audit, with a gradient and without.

    At each epsilon: twice the steps, restarts, noise; a paper's pass-through error once more;
    the transfer from another network, which the audited one judges. Once: a very large epsilon.
    """
    passed = int(method.tensor_norm and method.backward == "paper")
    transfer = int(method.tensor_norm or method.blend is not None)
    epsilons = len(study.attack.epsilons)
    return epsilons * (2 + study.audit.restarts + passed + transfer) + 1, epsilons * (1 + transfer)


def disk_bytes(study: Study, machine: Machine, slots: int) -> int:
    """Weights, attack results and prepared data, and the checkpoints of what runs at a time."""
    kinds = {(cell.dataset, cell.model): cell for cell in study.cells}
    costs = {key: cost_of(study, machine, cell) for key, cell in kinds.items()}
    total, largest = 0, 0
    for cell in study.cells:
        images, cost = costs[cell.dataset, cell.model]
        attacked = min(study.attack.limit or images.test, images.test)
        arrays = len(study.attack.epsilons) * attacked * study.attack.steps
        total += 4 * cost.parameters + arrays
        largest = max(largest, 8 * cost.parameters)
    data = {cell.dataset: costs[cell.dataset, cell.model][0].bytes for cell in study.cells}
    return total + slots * largest + sum(data.values())
