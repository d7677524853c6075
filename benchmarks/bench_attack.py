"""The attack against Foolbox's own LinfPGD, which judges only the last iterate.

Both get the same model and images. Foolbox is called as its documentation does, on the default
memory format and all images at once; our batch is ours to choose, and half a hundred images of
a small network stay in the processor's cache. A row is met only if the adversarials are also
equal bit for bit to those of Foolbox on the very tensors that our attack runs on. ResNet-34
takes 10 steps, not the paper's 40: the one forward pass beside them weighs more, against us.
"""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context

import psutil
import torch
from foolbox.attacks.projected_gradient_descent import LinfProjectedGradientDescentAttack
from foolbox.models.pytorch import PyTorchModel
from torch import Tensor, nn

from benchmarks.ratios import Row, interleaved
from tnfdt.attack.trajectory import pgd_trajectory
from tnfdt.models import Stem, create_model
from tnfdt.study.attack_settings import REL_STEPSIZE

EPSILON = 0.1
Attack = Callable[[nn.Module, Tensor, Tensor, int], Tensor]


@dataclass(frozen=True)
class Case:
    name: str
    stem: Stem
    images: int
    batch: int
    steps: int
    bound: float


CASES = (
    Case("resnet34", "cifar", 16, 16, 10, 1.75),
    Case("resnet34", "imagenet", 100, 100, 10, 1.8),
    Case("wrn10_1", "cifar", 100, 50, 40, 1.7),
)


def main() -> list[Row]:
    """Each row in a new process: memory that an earlier one left to the allocator changes the
    next one's speed by up to a half."""
    with ProcessPoolExecutor(1, get_context("spawn"), max_tasks_per_child=1) as pool:
        return [*pool.map(_speed, CASES), _memory(pool, CASES[0])]


def _speed(case: Case) -> Row:
    torch.set_num_threads(1)
    model, images, labels = _setup(case)
    fast, ready = _channels_last(copy.deepcopy(model), images)
    ratio = 1 / interleaved(
        lambda: _foolbox(model, images, labels, case.steps),
        lambda: _batches(_ours, case, fast, ready, labels),
        repeats=3,
        clock=time.process_time,
    )
    pair = [_batches(attack, case, fast, ready, labels) for attack in (_ours, _foolbox)]
    what = f"{case.name}, {case.stem} stem, {case.images} images in batches of {case.batch}"
    row = Row.at_least(f"attack speed / Foolbox's ({what})", ratio, case.bound)
    return Row(row.name, ratio, f"{row.target}, same images", row.ok and torch.equal(*pair))


def _memory(pool: ProcessPoolExecutor, case: Case) -> Row:
    case = replace(case, steps=3)  # each takes what the one before took
    ours, theirs = (pool.submit(_growth, case, own).result() for own in (True, False))
    return Row.at_most(f"attack peak memory / Foolbox's ({case.name})", ours / theirs, 1)


def _growth(case: Case, own: bool) -> int:
    """Bytes by which this process grows at most during the attack.

    Sampled, because the peak that the system keeps would be the parent's before it started us.
    """
    torch.set_num_threads(1)
    model, images, labels = _setup(case)
    if own:
        model, images = _channels_last(model, images)
    memory, sizes, done = psutil.Process().memory_info, [0], threading.Event()

    def watch() -> None:
        while not done.wait(0.001):
            sizes.append(memory().rss)

    before, watcher = memory().rss, threading.Thread(target=watch)
    watcher.start()
    (_ours if own else _foolbox)(model, images, labels, case.steps)
    done.set()
    watcher.join()
    return max(sizes) - before


def _setup(case: Case) -> tuple[nn.Module, Tensor, Tensor]:
    """A network with batch statistics of its images, and labels to move away from."""
    torch.manual_seed(0)
    model, images = create_model(case.name, 10, stem=case.stem), torch.rand(case.images, 3, 32, 32)
    with torch.no_grad():
        for _ in range(3):
            model.train()(images[:16])
        labels = model.eval()(images[:1]).argmax(1).repeat(case.images)
    return model, images, labels


def _channels_last(model: nn.Module, images: Tensor) -> tuple[nn.Module, Tensor]:
    layout = torch.channels_last
    return model.to(memory_format=layout), images.contiguous(memory_format=layout)


def _batches(
    attack: Attack, case: Case, model: nn.Module, images: Tensor, labels: Tensor
) -> Tensor:
    parts = [slice(first, first + case.batch) for first in range(0, case.images, case.batch)]
    return torch.cat([attack(model, images[part], labels[part], case.steps) for part in parts])


def _foolbox(model: nn.Module, images: Tensor, labels: Tensor, steps: int) -> Tensor:
    attack = LinfProjectedGradientDescentAttack(
        rel_stepsize=REL_STEPSIZE, steps=steps, random_start=False
    )
    target = PyTorchModel(model, bounds=(0, 1), device="cpu")
    adversarial, _, _ = attack(target, images, labels, epsilons=EPSILON)
    return adversarial


def _ours(model: nn.Module, images: Tensor, labels: Tensor, steps: int) -> Tensor:
    return pgd_trajectory(model, images, labels, EPSILON, steps=steps).adversarial
