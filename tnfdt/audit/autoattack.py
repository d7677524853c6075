"""AutoAttack (Croce & Hein 2020), the standard of the field, by its authors' pyautoattack.

Its four attacks in their standard settings; what is ours: the seed, the batches, which image is
broken by which kind of attack, and its warnings as flags.
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from tnfdt.attack.pgd import frozen

FLAGS = {
    "randomized": "randomized defense",
    "dynamic": "dynamic defense",
    "probabilities": "output is a probability distribution",
    "apgd_zero_gradients": "points with zero gradient",
}
"""What AutoAttack warns of, and the words of its warning. The fifth is Square finding more than
the attacks with gradients, which `correct` shows image by image."""


class Result(NamedTuple):
    correct: Tensor  # bool [2, N]: right after the attacks with gradients, and after Square
    flags: dict[str, bool]


def is_installed() -> bool:
    return importlib.util.find_spec("pyautoattack") is not None


def autoattack(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    epsilon: float,
    *,
    num_classes: int,
    seed: int,
) -> Result:
    """Which images [N, C, H, W] in [0, 1] AutoAttack leaves right within L-infinity `epsilon`.

    Follows the gradient that the model has: set it to the exact one first.
    """
    images = images.contiguous()  # its `view` fails on channels_last
    used = [images.device] if images.is_cuda else []  # else it touches every GPU it sees
    with frozen(model), torch.random.fork_rng(devices=used), _flags() as flags:
        attack = _standard(model, epsilon, num_classes, images.device, seed)
        *gradients, square = attack.attacks_to_run
        held = _survivors(attack, images, labels, gradients)
        left = held.clone()
        if held.any():
            left[held] = _survivors(attack, images[held], labels[held], [square])
    return Result(torch.stack([held, left]), flags)


def _standard(
    model: nn.Module, epsilon: float, num_classes: int, device: torch.device, seed: int
) -> Any:
    """The standard version, with as many target classes as there are.

    The targeted DLR loss needs four classes; with fewer, FAB alone is targeted.
    """
    from pyautoattack import AutoAttack  # type: ignore[import-untyped]

    attack = AutoAttack(model, eps=epsilon, seed=seed, device=device)
    attack.verbose = False  # what it would log makes the host wait
    targets = min(attack.fab.n_target_classes, num_classes - 1)
    attack.fab.n_target_classes = attack.apgd_targeted.n_target_classes = targets
    if num_classes < 4:
        attack.attacks_to_run.remove("apgd-t")
    return attack


def _survivors(attack: Any, images: Tensor, labels: Tensor, names: list[str]) -> Tensor:
    """Which images [N] are right after the named attacks."""
    attack.attacks_to_run = names
    found, _ = attack.run_standard_evaluation(images, labels, batch_size=len(images))
    with torch.no_grad():
        right: Tensor = attack.model(found).argmax(1) == labels
    return right


@contextlib.contextmanager
def _flags() -> Iterator[dict[str, bool]]:
    """What AutoAttack warns of meanwhile, read off its log; nothing is printed."""
    from pyautoattack import checks

    flags = dict.fromkeys(FLAGS, False)
    logger, tracer = logging.getLogger("auto-attack"), sys.gettrace()
    handler = _Reader(flags)
    checks.funcs.update(dict.fromkeys(checks.funcs, 0))  # its counts of an earlier network
    printed, logger.propagate = logger.propagate, False
    logger.addHandler(handler)
    try:
        yield flags
    finally:
        logger.removeHandler(handler)
        logger.propagate = printed
        sys.settrace(tracer)  # its check for dynamic defenses takes a debugger's away


class _Reader(logging.Handler):
    def __init__(self, flags: dict[str, bool]) -> None:
        super().__init__(logging.WARNING)
        self.flags = flags

    def emit(self, record: logging.LogRecord) -> None:
        for name, words in FLAGS.items():
            self.flags[name] |= words in record.getMessage()
