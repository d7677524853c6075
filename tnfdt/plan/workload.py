"""How much work a study is: images, floating-point operations and bytes of each job.

Operations are counted by torch on the meta device, where a network has shapes but no numbers:
convolutions and matrix products, a multiplication and an addition each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from tnfdt.data.registry import DATASETS, Images
from tnfdt.study.machine import Machine
from tnfdt.study.multiverse import additions
from tnfdt.study.names import duration
from tnfdt.study.paths import Cell, StudyPaths
from tnfdt.study.schema import UserError
from tnfdt.study.study import Slice, Study

STAGES = ("train", "attack", "audit")
_BLACK_BOX_PASSES = 2500  # of the audit's attack by decisions alone, an image
_AUTOATTACK_STEPS = 100  # of its first attack; the others run on what that leaves, if anything


class Passes(NamedTuple):
    """Something by kind of pass: through the network, a step of SGD, a step of PGD."""

    forward: float
    learn: float
    attack: float

    def dot(self, other: Passes) -> float:
        return sum(a * b for a, b in zip(self, other, strict=True))


class Cost(NamedTuple):
    """Operations per image, layers and parameters of a network."""

    operations: Passes
    layers: int
    parameters: int


class Job(NamedTuple):
    """One process that Snakemake starts: a training, an attack at one epsilon, or an audit."""

    stage: str
    cell: Cell
    images: Passes  # that go through each kind of pass
    output: Path  # the record that says that it is done
    reading: str = ""  # the other reading of the paper that adds it


def images_of(study: Study, machine: Machine, dataset: str) -> Images:
    """The images of a dataset: as prepared, as in its .npz, or as published, within the limit."""
    manifest = machine.paths(study.name).manifest(dataset)
    if manifest.is_file():
        return _prepared(manifest)
    path, limit = study.dataset_path(dataset, machine), study.limit
    found = _in_npz(Path(path)) if path else DATASETS[dataset].images
    train, test = limit.train or found.train, limit.test or found.test
    return found._replace(train=min(found.train, train), test=min(found.test, test))


def _prepared(path: Path) -> Images:
    from tnfdt.files.atomic import read_json

    manifest = read_json(path)
    try:
        train, test = (manifest["arrays"][key]["shape"] for key in ("train_x", "test_x"))
        return Images(*map(int, (train[0], test[0], train[2], train[3], manifest["num_classes"])))
    except (KeyError, TypeError, IndexError, ValueError):
        raise UserError(f"{path} is not a manifest; delete the folder and run again") from None


def _in_npz(path: Path) -> Images:
    from tnfdt.data.npz import read_npz

    found = read_npz(path)
    train, _, height, width = found.train_x.shape
    return Images(train, len(found.test_x), height, width, int(found.train_y.max()) + 1)


@cache
def model_cost(model: str, stem: Any, classes: int, height: int, width: int) -> Cost:
    """The cost of a network, from torch's counter."""
    import torch

    from tnfdt.models import create_model, size_refused, takes_no_such_size

    with torch.device("meta"):
        try:
            network = create_model(model, classes, stem=stem)
        except ValueError as error:
            raise UserError(f"network {model}: {error}") from None
        images = torch.empty(2, 3, height, width)
    parameters = sum(item.numel() for item in network.parameters())
    layers = sum(not list(module.children()) for module in network.modules())
    try:
        learn = _count(network, images)
        attack = _count(network.eval().requires_grad_(False), images.requires_grad_())
        forward = _count(network, images.detach())
    except (AssertionError, RuntimeError) as error:
        if not takes_no_such_size(error):
            raise
        raise UserError(size_refused(model, images.shape, error)) from None
    return Cost(Passes(forward, learn, attack), layers, parameters)


def _count(network: Any, images: Any) -> float:
    """Operations per image of a forward pass, and of the backward pass if anything needs it."""
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        logits = network(images)
        if logits.requires_grad:
            logits.sum().backward()
    return float(counter.get_total_flops()) / len(images)


def cost_of(study: Study, machine: Machine, cell: Cell) -> Cost:
    """The network of a cell; adversarial training attacks in every step."""
    images, config = images_of(study, machine, cell.dataset), study.train_slice(cell, machine)
    cost = model_cost(cell.model, config["stem"], images.classes, images.height, images.width)
    inner = (config.get("adversarial") or {}).get("steps", 0)
    learn = cost.operations.learn + inner * cost.operations.attack
    return cost._replace(operations=cost.operations._replace(learn=learn))


def jobs_of(study: Study, machine: Machine, *, readings: bool | None = None) -> list[Job]:
    """Every training, attack and audit that the target `all` runs, trainings first.

    readings: those of other readings of the paper too, or not, whether `all` runs them or not.
    """
    paths = machine.paths(study.name)
    images = {name: images_of(study, machine, name) for name in study.grid_datasets}
    jobs = [job for c in study.cells for job in _training(study, c, images[c.dataset], paths)]
    jobs += [job for c in study.cells for job in _attacks(study, c, images[c.dataset], paths)]
    for cell in study.audited() if study.audit.include else []:
        work = _audit(study, study.train_slice(cell, machine), images[cell.dataset].test)
        jobs.append(Job("audit", cell, work, paths.audit_record(cell)))
    if study.multiverse.include if readings is None else readings:
        jobs += _added(study, images, paths)
    return sorted(jobs, key=lambda job: STAGES.index(job.stage))


def _training(study: Study, cell: Cell, images: Images, paths: StudyPaths) -> Iterator[Job]:
    epochs = study.training.epochs
    work = Passes(epochs * images.test, epochs * images.train, 0)
    yield Job("train", cell, work, paths.record(cell))


def _attacks(study: Study, cell: Cell, images: Images, paths: StudyPaths) -> Iterator[Job]:
    few = min(study.attack.limit or images.test, images.test)
    work = Passes(few + images.test, 0, few * study.attack.steps)
    for epsilon in study.attack.epsilons:
        yield Job("attack", cell, work, paths.attack_record(cell, epsilon))


def _added(study: Study, images: Mapping[str, Images], paths: StudyPaths) -> Iterator[Job]:
    """What each other reading is the first to need."""
    for title, added in additions(study.multiverse).items():
        for make, names in ((_training, added.trained), (_attacks, added.attacked)):
            for cell in (cell for name in names for cell in study.variants_of(name)):
                found = make(study, cell, images[cell.dataset], paths)
                yield from (job._replace(reading=title) for job in found)


def count_text(study: Study) -> str:
    """The jobs of a study's own reading in words."""
    cells, audits = len(study.cells), len(study.audited()) if study.audit.include else 0
    text = f"{cells} trainings, {cells * len(study.attack.epsilons)} attacks"
    return f"{text}, {audits} audits" if audits else text


def reading_lines(study: Study, hours: Mapping[str, str] | None = None) -> list[str]:
    """What other readings cost, one a line, with `hours` by title; none without any."""
    lines, sums = [], [0, 0]
    for title, added in additions(study.multiverse).items():
        counts = [
            sum(len(study.variants_of(name)) for name in names)
            for names in (added.trained, added.attacked)
        ]
        sums = [total + count for total, count in zip(sums, counts, strict=True)]
        shared = f"{len(study.cells) - counts[0]} shared"
        time = f"; {hours.get(title, duration(0))} of one device" if hours is not None else ""
        lines.append(f"  {title}: {_more(study, *counts)}, {shared}{time}")
    by = "a part of `all`" if study.multiverse.include else "run by the target `multiverse` alone"
    return [f"other readings, {by}: {_more(study, *sums)}", *lines] if lines else []


def _more(study: Study, trained: int, attacked: int) -> str:
    attacks = attacked * len(study.attack.epsilons)
    return f"{trained} more trainings, {attacks} more attacks"


def _audit(study: Study, method: Slice, test: int) -> Passes:
    """At each epsilon: twice the steps, restarts, noise; a paper's pass-through error once more;
    the transfer from another network, which the audited one judges. Once: a very large epsilon.
    """
    passed = int(method["tensor_norm"] == "paper")
    transfer = int(bool(method["tensor_norm"] or method["blend"]))
    epsilons = len(study.audit.epsilons(study.attack))
    few = min(study.audit.limit or test, test)
    backward = epsilons * (2 + study.audit.restarts + passed + transfer) + 1
    decided = _BLACK_BOX_PASSES * min(study.audit.black_box, few)
    forward = few * study.attack.steps * epsilons * (1 + transfer) + decided
    auto = study.audit.autoattack
    seen = min(auto.images or few, few) * len(auto.epsilons) if auto else 0
    steps = few * study.attack.steps * backward + _AUTOATTACK_STEPS * seen
    return Passes(forward, 0, steps)


def disk_bytes(study: Study, machine: Machine, at_once: int) -> int:
    """Weights, attack results and prepared data, and the checkpoints of what runs at a time."""
    images = {name: images_of(study, machine, name) for name in study.grid_datasets}
    cells = [*study.cells, *(study.variants if study.multiverse.include else ())]
    trained = dict.fromkeys(map(study.trained_as, cells))
    weights = [4 * cost_of(study, machine, cell).parameters for cell in trained]
    arrays = [min(study.attack.limit or 10**9, images[cell.dataset].test) for cell in cells]
    attacked = len(study.attack.epsilons) * study.attack.steps * sum(arrays)
    data = sum(found.bytes for found in images.values())
    return data + sum(weights) + attacked + at_once * 2 * max(weights)
