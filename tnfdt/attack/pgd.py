"""Stage 3: the paper's attack, projected gradient descent with every iterate judged.

Foolbox takes the steps (Eq. 6). What is ours: the verdict on iterate t is read off the forward
pass that step t + 1 makes anyway, so that the robust accuracy over all iterates (Eq. 7) costs
one forward pass in all, and nothing is computed or kept for gradients of weights.

Folding batch normalization into the convolutions was measured too: it gained nothing on large
networks, and its rounding flips signs of gradients.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from eagerpy.astensor import astensor
from eagerpy.tensor.tensor import Tensor as Eager
from foolbox.attacks.projected_gradient_descent import LinfProjectedGradientDescentAttack
from foolbox.criteria import Misclassification
from foolbox.models.base import Model
from foolbox.models.pytorch import PyTorchModel
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from tnfdt.attack.trajectory import Trajectory
from tnfdt.study.schema import UserError

LARGE = 2**16  # pixels of a batch from which on a leaner batch norm outweighs its calls

Bits = npt.NDArray[np.bool_]


class TrajectoryPGD(LinfProjectedGradientDescentAttack):
    """Foolbox's L-infinity PGD that keeps what its forward passes tell about each iterate.

    `logits` and `losses` get one entry per forward pass, `gradient_norms` one per gradient. The
    norm is L1, dual to the ball: what a step gains to first order, and no square underflows.
    """

    def __init__(
        self,
        *,
        steps: int,
        rel_stepsize: float,
        random_start: bool,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(steps=steps, rel_stepsize=rel_stepsize, random_start=random_start)
        self.generator = generator
        self.logits: list[Tensor] = []
        self.losses: list[Tensor] = []
        self.gradient_norms: list[Tensor] = []

    def get_random_start(self, x0: Eager, epsilon: float) -> Eager:
        """Drawn on the CPU, so that the start does not depend on the device."""
        noise = torch.rand(x0.shape, generator=self.generator, dtype=x0.raw.dtype)
        return x0 + astensor((2 * noise - 1).to(x0.raw.device) * epsilon)

    def get_loss_fn(self, model: Model, labels: Eager) -> Callable[[Eager], Eager]:
        def loss_fn(inputs: Eager) -> Eager:
            logits = model(inputs)
            loss = logits.crossentropy(labels)
            self.logits.append(self.judge(inputs.raw.detach(), logits.raw.detach()))
            self.losses.append(loss.raw.detach())
            return loss.sum()

        return loss_fn

    def judge(self, inputs: Tensor, logits: Tensor) -> Tensor:
        """The logits that decide whether an iterate is right: the attacked model's own."""
        return logits

    def value_and_grad(self, loss_fn: Callable[[Eager], Eager], x: Eager) -> tuple[Eager, Eager]:
        inputs = x.raw.detach().requires_grad_()
        loss = loss_fn(astensor(inputs)).raw
        (gradient,) = torch.autograd.grad(loss, inputs)
        self.gradient_norms.append(gradient.flatten(1).abs().sum(1))
        return astensor(loss.detach()), astensor(gradient)


def run_attack(
    attack: TrajectoryPGD,
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    epsilon: float,
    *,
    bounds: tuple[float, float] = (0, 1),
) -> Trajectory:
    """Run a fresh `attack`, judge its last iterate too, and collect the trajectory."""
    check_attack(images, labels, epsilon, attack.steps, attack.rel_stepsize, bounds)
    labels = labels.long()
    lean = _LeanBatchNorm() if images.numel() >= LARGE else contextlib.nullcontext()
    with frozen(model), lean:
        target = PyTorchModel(model, bounds=bounds, device=images.device)
        judged = attack.get_loss_fn(target, astensor(labels))
        if attack.random_start:
            judged(astensor(images))  # the first step will not look at the image itself
        adversarial = attack.run(target, images, Misclassification(labels), epsilon=epsilon)
        judged(astensor(adversarial))
    return _collect(attack, labels, adversarial)


def _collect(attack: TrajectoryPGD, labels: Tensor, adversarial: Tensor) -> Trajectory:
    predictions = torch.stack([logits.argmax(1) for logits in attack.logits])
    correct = predictions == labels
    return Trajectory(
        correct=correct[-attack.steps :],
        adversarial=adversarial,
        predictions=predictions[0],
        clean=correct[0],
        loss=torch.stack(attack.losses[-attack.steps :]),
        gradient_norm=torch.stack(attack.gradient_norms),
    )


@contextlib.contextmanager
def frozen(model: nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients of the weights; afterwards as before.

    Without them torch neither computes nor keeps anything for the weights: that is half of a
    backward pass and most of its memory.
    """
    modes = [(module, module.training) for module in model.modules()]
    flags = [(parameter, parameter.requires_grad) for parameter in model.parameters()]
    model.eval().requires_grad_(False)
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training
        for parameter, flag in flags:
            parameter.requires_grad_(flag)


class _LeanBatchNorm(TorchFunctionMode):
    """Batch normalization of evaluation mode that keeps nothing and sums nothing for its weights.

    torch's own backward pass sums over the batch whether or not a weight asks for it. On the CPU
    the lean one gives the same bits; elsewhere torch's own is left in place.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func is functional.batch_norm:
            return _batch_norm(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


def _batch_norm(
    x: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    if training or running_var is None or weight is None or x.device.type != "cpu":
        return functional.batch_norm(
            x, running_mean, running_var, weight, bias, training, momentum, eps
        )
    normalized: Tensor = _EvalBatchNorm.apply(x, running_mean, running_var, weight, bias, eps)
    return normalized


class _EvalBatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, mean: Tensor, var: Tensor, weight: Tensor, bias: Tensor, eps: float
    ) -> Tensor:
        per_channel = (-1, *[1] * (x.dim() - 2))
        # in the order and precision of torch's kernel, so that no bit of the error differs
        ctx.inverse = var.double().add(eps).rsqrt().to(var.dtype).view(per_channel)
        ctx.weight = weight.view(per_channel)
        return functional.batch_norm(x, mean, var, weight, bias, False, 0.0, eps)

    @staticmethod
    def backward(ctx: Any, *errors: Tensor) -> tuple[Tensor | None, ...]:
        (error,) = errors
        return (error * ctx.inverse).mul_(ctx.weight), None, None, None, None, None


def accuracies(correct: Bits) -> dict[str, float]:
    """The three readings of `correct` [T, N]: Eq. 7, the last iterate, right on every iterate."""
    return {
        "robust_accuracy": float(correct.mean()),
        "last_accuracy": float(correct[-1].mean()),
        "worst_accuracy": float(correct.all(0).mean()),
    }


def check_epsilon(epsilon: float) -> None:
    """An attack needs a ball to search."""
    if not (math.isfinite(epsilon) and epsilon > 0):
        raise UserError(f"attack: epsilon is {epsilon}; give a finite number above 0")


def check_attack(
    images: Tensor,
    labels: Tensor,
    epsilon: float,
    steps: int,
    rel_stepsize: float,
    bounds: tuple[float, float],
) -> None:
    """Refuse in one line what would end in an assertion deep inside Foolbox."""
    check_epsilon(epsilon)
    if len(images) == 0:
        raise UserError("attack: there are no test images; prepare a set that has some")
    if labels.shape != (len(images),):
        raise UserError(f"attack: {len(images)} images but labels of shape {list(labels.shape)}")
    if steps < 1 or not (math.isfinite(rel_stepsize) and rel_stepsize > 0):
        raise UserError(f"attack: steps is {steps}, rel_stepsize {rel_stepsize}; both must be > 0")
    if not images.is_floating_point():
        raise UserError(f"attack: images are {images.dtype}; give floats, pixels divided by 255")
    low, high = float(images.min()), float(images.max())
    if not bounds[0] <= low <= high <= bounds[1]:
        raise UserError(f"attack: pixels span [{low:g}, {high:g}], outside the bounds {bounds}")
