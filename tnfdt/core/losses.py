"""The losses of Alg. 3 and Alg. 4, with the paper's values and the paper's errors.

The functions for users look at the values that they are given; on a GPU every look makes the
host wait. A training calls `log_losses` with a table made on the CPU, which looks at nothing.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

__all__ = [
    "log_losses", "loss_table", "multi_class_log_loss", "multi_label_log_loss",
    "soft_cross_entropy",
]  # fmt: skip


def multi_class_log_loss(logits: Tensor, classes: Tensor) -> Tensor:
    """Alg. 3: −log softmax(logits)[class], mean over the batch; its error is (p − one-hot)/B.

    logits [B, C] finite; classes: int64 [B] in 0..C−1. Returns a scalar.
    """
    _check_logits(logits)
    if classes.dtype != torch.int64 or classes.shape != logits.shape[:1]:
        found = f"{classes.dtype} {list(classes.shape)}"
        raise ValueError(f"classes: expected torch.int64 [{len(logits)}], got {found}")
    inside = (classes >= 0) & (classes < logits.shape[1])
    _check_values(logits, inside.all(), f"classes: expected 0..{logits.shape[1] - 1} only")
    return nn.functional.cross_entropy(logits, classes)


def multi_label_log_loss(logits: Tensor, targets: Tensor, eps: float = 1e-8) -> Tensor:
    """Alg. 4, the loss of full distribution training.

    Its value is −log softmax(logits), *not* weighted, summed over the classes with
    target > eps and divided by B. Its error is the paper's (p − target)/B, which is the gradient
    of `soft_cross_entropy` and not that of the value. logits [B, C] finite; targets [B, C] ≥ 0,
    rows sum to 1. Returns a scalar; targets get no gradient.
    """
    _check_targets(logits, targets)
    return log_losses(logits, loss_table(targets, eps))[0]


def soft_cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """−Σ target · log softmax(logits), mean over the batch: what Alg. 4's error minimises.

    Shapes and checks as in `multi_label_log_loss`. Returns a scalar.
    """
    _check_targets(logits, targets)
    return nn.functional.cross_entropy(logits, targets.to(logits.dtype))


def loss_table(targets: Tensor, eps: float = 1e-8) -> Tensor:
    """What `log_losses` needs of targets [B, C]: [3, B, C], active or not, targets, active targets.

    The classes with target > eps are active.
    """
    active = (targets > eps).to(targets.dtype)
    return torch.stack([active, targets, targets * active])


def log_losses(logits: Tensor, table: Tensor) -> tuple[Tensor, Tensor]:
    """Alg. 4's loss, and the soft cross-entropy of the same logits, which gets no gradient.

    logits [B, C]; table [3, B, C] as `loss_table` makes it. Nothing is checked.
    """
    losses: tuple[Tensor, Tensor] = _LogLosses.apply(logits, table)
    return losses


class _LogLosses(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, table: Tensor) -> tuple[Tensor, Tensor]:
        log_p = logits.log_softmax(1)
        sums = (log_p * table[:2].to(log_p.dtype)).sum((1, 2))
        loss, soft = (sums / -len(logits)).unbind()
        ctx.save_for_backward(log_p, table[2])
        ctx.mark_non_differentiable(soft)
        return loss, soft

    @staticmethod
    def backward(ctx: Any, *scales: Tensor) -> tuple[Tensor, None]:
        log_p, targets = ctx.saved_tensors
        error = (log_p.exp() - targets) * (scales[0] / len(log_p))
        return error.to(log_p.dtype), None


def _check_logits(logits: Tensor) -> None:
    if logits.dim() != 2 or not logits.is_floating_point() or not logits.numel():
        found = f"{logits.dtype} {list(logits.shape)}"
        raise ValueError(f"logits: expected floating point [B, C], got {found}")


def _check_targets(logits: Tensor, targets: Tensor) -> None:
    _check_logits(logits)
    if targets.shape != logits.shape or not targets.is_floating_point():
        found = f"{targets.dtype} {list(targets.shape)}"
        raise ValueError(f"targets: expected floating point {list(logits.shape)}, got {found}")
    tolerance = 1e-4 if targets.dtype in (torch.float32, torch.float64) else 1e-2
    near = (targets.sum(1) - 1).abs() <= tolerance
    valid = near.all() & (targets >= 0).all()
    _check_values(logits, valid, "targets: expected rows of numbers ≥ 0 that sum to 1")


def _check_values(logits: Tensor, valid: Tensor, message: str) -> None:
    """Raise on logits that are not finite, else on `valid` being false, with one look at both."""
    if torch.compiler.is_compiling():  # a look at the values would break the graph in two
        return
    finite, valid = torch.stack([torch.isfinite(logits).all(), valid]).tolist()
    if not finite:
        raise ValueError("logits: expected finite numbers, found NaN or infinity")
    if not valid:
        raise ValueError(message)
