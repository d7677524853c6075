"""Stronger attacks than the paper's, and attacks that need no gradient of the network.

Tensor normalization passes its error straight through, so the paper's attack follows a gradient
that is not the network's own; that alone can look like robustness.
"""

from __future__ import annotations

import torch
from eagerpy.astensor import astensor
from eagerpy.tensor.tensor import Tensor as Eager
from foolbox.attacks.additive_noise import LinfRepeatedAdditiveUniformNoiseAttack
from foolbox.attacks.hop_skip_jump import HopSkipJumpAttack
from foolbox.criteria import Misclassification
from foolbox.devutils import atleast_kd, flatten
from foolbox.models.pytorch import PyTorchModel
from torch import Tensor, nn

from tnfdt.attack.pgd import TrajectoryPGD, frozen, run_attack
from tnfdt.attack.trajectory import Trajectory


class TransferPGD(TrajectoryPGD):
    """PGD on one network, judged by another."""

    def __init__(self, victim: nn.Module, *, steps: int, rel_stepsize: float) -> None:
        super().__init__(steps=steps, rel_stepsize=rel_stepsize, random_start=False)
        self.victim = victim

    def judge(self, inputs: Tensor, logits: Tensor) -> Tensor:
        with torch.no_grad():
            judged: Tensor = self.victim(inputs)
        return judged


def transfer_trajectory(
    source: nn.Module,
    victim: nn.Module,
    images: Tensor,
    labels: Tensor,
    epsilon: float,
    *,
    steps: int,
    rel_stepsize: float,
) -> Trajectory:
    """Follow the gradient of `source`; `correct`, `clean` and `predictions` are the victim's."""
    attack = TransferPGD(victim, steps=steps, rel_stepsize=rel_stepsize)
    with frozen(victim):
        return run_attack(attack, source, images, labels, epsilon)


class SeededNoise(LinfRepeatedAdditiveUniformNoiseAttack):
    """Foolbox's repeated uniform noise, drawn on the CPU from an explicit generator."""

    def __init__(self, *, repeats: int, generator: torch.Generator) -> None:
        super().__init__(repeats=repeats)
        self.generator = generator

    def get_epsilons(self, x: Eager, p: Eager, epsilon: float, min_: float, max_: float) -> Eager:
        """Foolbox divides by the largest value, not by the largest size: up to 2 % too far."""
        largest: Eager = atleast_kd(flatten(p).abs().max(axis=-1), p.ndim)
        return epsilon / largest

    def sample_noise(self, x: Eager) -> Eager:
        noise = torch.rand(x.shape, generator=self.generator, dtype=x.raw.dtype)
        return astensor((2 * noise - 1).to(x.raw.device))


def survives_noise(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    epsilon: float,
    *,
    repeats: int,
    generator: torch.Generator,
) -> Tensor:
    """Which images [N] stay right under each of `repeats` draws of noise; needs no gradient."""
    attack = SeededNoise(repeats=repeats, generator=generator)
    with frozen(model):
        target = PyTorchModel(model, bounds=(0, 1), device=images.device)
        _, _, broken = attack(target, images, Misclassification(labels), epsilons=epsilon)
    return ~broken


def decision_distance(
    model: nn.Module, images: Tensor, labels: Tensor, *, steps: int, seed: int
) -> Tensor:
    """L-infinity distance [N] to the nearest mistake HopSkipJump finds from decisions alone.

    It starts from the nearest image of the batch with another prediction; infinite without one.
    """
    attack = HopSkipJumpAttack(steps=steps, constraint="linf")
    used = [images.device] if images.is_cuda else []  # else it touches every GPU it sees
    with frozen(model), torch.no_grad(), torch.random.fork_rng(devices=used):
        torch.manual_seed(seed)  # Foolbox draws from the global generator here
        predictions = model(images).argmax(1)
        distance = torch.where(predictions == labels, torch.inf, 0.0)
        starts = nearest_mistakes(images, predictions, labels)
        todo = (predictions == labels) & (starts >= 0)
        if todo.any():
            target = PyTorchModel(model, bounds=(0, 1), device=images.device)
            criterion, begin = Misclassification(labels[todo]), images[starts[todo]]
            found = attack.run(target, images[todo], criterion, starting_points=begin)
            distance[todo] = (found - images[todo]).flatten(1).abs().amax(1).to(distance.dtype)
    return distance


def nearest_mistakes(images: Tensor, predictions: Tensor, labels: Tensor) -> Tensor:
    """Per image the position [N] of the nearest one not predicted as its label, -1 without any."""
    flat = images.flatten(1)
    distances = torch.cdist(flat, flat).masked_fill(predictions == labels[:, None], torch.inf)
    nearest = distances.argmin(1)
    return torch.where(distances.amin(1).isfinite(), nearest, -1)
