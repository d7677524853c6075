"""The paper's attack as a library function: images in, a trajectory out.

Needs torch alone until an attack is run: Foolbox takes the steps, in tnfdt/attack/pgd.py.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tnfdt.study.attack_settings import REL_STEPSIZE


@dataclass(frozen=True)
class Trajectory:
    """What PGD did to N images in T steps.

    correct        [T, N] bool   was iterate t+1 of image n classified right
    adversarial    [N, ...]      the last iterate
    predictions    [N] int64     the class of each image before the attack
    clean          [N] bool      was that the right one
    loss           [T, N]        cross-entropy on iterate t+1
    gradient_norm  [T, N]        L1 norm of the gradient that led to iterate t+1
    """

    correct: Tensor
    adversarial: Tensor
    predictions: Tensor
    clean: Tensor
    loss: Tensor
    gradient_norm: Tensor


def pgd_trajectory(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    epsilon: float,
    *,
    steps: int = 40,
    rel_stepsize: float = REL_STEPSIZE,
    random_start: bool = False,
    bounds: tuple[float, float] = (0, 1),
    generator: torch.Generator | None = None,
) -> Trajectory:
    """Eq. 6: x(t+1) = Clip(x(t) + alpha * sign(gradient)), alpha = rel_stepsize * epsilon.

    `images` [N, C, H, W] are floats within `bounds`, `labels` [N] classes. The iterates are
    those of Foolbox's own LinfPGD. The model runs in evaluation mode and is given back as it
    was. Convolutional networks are fastest on images in torch.channels_last, which is kept.
    A random start takes its noise from `generator`, by default torch's global one.
    """
    try:
        from tnfdt.attack.pgd import TrajectoryPGD, run_attack
    except ImportError as error:
        raise ImportError(
            f"pgd_trajectory needs foolbox ({error}); pip install 'tnfdt[harness]'"
        ) from None
    attack = TrajectoryPGD(
        steps=steps, rel_stepsize=rel_stepsize, random_start=random_start, generator=generator
    )
    return run_attack(attack, model, images, labels, epsilon, bounds=bounds)


def robust_accuracy(trajectory: Trajectory) -> float:
    """Eq. 7: the share of all iterates of all images that are classified right."""
    return float(trajectory.correct.cpu().double().mean())
