"""Signs that an attack failed, and the badge that they add up to.

They follow Pintor et al., "Indicators of Attack Failure" (NeurIPS 2022), and are functions of
stored curves: arrays in, numbers out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tnfdt.attack.pgd import Bits, accuracies
from tnfdt.files.records import Record
from tnfdt.study.attack_settings import SOUND_DISTANCE

Floats = npt.NDArray[np.floating[Any]]

LARGE_EPSILON = 0.5  # every image can be turned into plain grey: nothing is left to recognise

LIMITS = {
    "loss_still_moving": 0.05,
    "adversarial_lost": 0.01,
    "zero_gradients": 0.01,
    "gradient_misleads": 0.01,
    "gradient_free_wins": 0.01,
    "stronger_attack": SOUND_DISTANCE,
    "accuracy_not_falling": 0.01,
    "chance_not_reached": 0.0,
    "square_wins": 0.01,
    "randomized": 0.0,
    "dynamic": 0.0,
    "probabilities": 0.0,
    "apgd_zero_gradients": 0.0,
}
"""An indicator trips above its limit, shares of images but for the first, a share of a loss gain.

A cell is *sound* if none trips; `stronger_attack` by the distance of the worst of all attacks from
the last iterate of the paper's attack. The last five are AutoAttack's flags. A single
image never trips one: with few images the limit is one image.
"""


class Outcome(NamedTuple):
    """One attack at one epsilon: correct [T, N] and, where it has gradients, loss and norm.

    AutoAttack has flags, each the share of the images it speaks of.
    """

    correct: Bits
    loss: Floats | None = None
    gradient_norm: Floats | None = None
    flags: Mapping[str, float] | None = None


class Sign(NamedTuple):
    """The value of an indicator, and on how many images it was measured."""

    value: float
    images: int


def survivors(correct: Bits) -> Bits:
    """What is right all along the first axis: of [T, N], the images right on every iterate."""
    return np.asarray(correct.all(0), dtype=np.bool_)


def loss_still_moving(correct: Bits, loss: Floats) -> float:
    """Of the loss gained on images never broken, the share gained in the last eighth of steps."""
    held = loss[:, survivors(correct)].astype(np.float64)
    last = max(len(loss) // 8, 1)
    if held.shape[1] == 0 or len(loss) <= last:
        return 0.0
    curve = held.mean(1)
    gained = curve[-1] - curve[0]
    return float(max(curve[-1] - curve[-1 - last], 0) / gained) if gained > 0 else 0.0


def adversarial_lost(correct: Bits) -> float:
    """Share of images wrong on some iterate and right on the last."""
    return float((correct[-1] & ~survivors(correct)).mean())


def zero_gradients(correct: Bits, clean: Bits, gradient_norm: Floats) -> float:
    """Share of images that are still right at a point where the gradient is exactly zero."""
    right = np.vstack([clean, correct[:-1]])
    return float((right & (gradient_norm == 0)).any(0).mean())


def gradient_misleads(paper: Bits, exact: Bits) -> float:
    """Share of images by which the exact gradient breaks more than the paper's, net."""
    return float(survivors(paper).mean() - survivors(exact).mean())


def gradient_free_wins(paper: Bits, others: Iterable[Bits]) -> float:
    """Share of images that the paper's attack leaves and one without its gradient breaks."""
    held = survivors(paper)
    broken = [~survivors(other) & held[: other.shape[1]] for other in others]
    widened = [np.pad(lost, (0, len(held) - len(lost))) for lost in broken]
    return float(np.any(widened, axis=0).mean()) if widened else 0.0


def stronger_attack(paper: Bits, held: Bits, counts: Iterable[int]) -> Sign:
    """How far the worst of all attacks lies below the paper's last iterate.

    held [N]: right under every attack. Some attacks have only the first images, as many as
    `counts` has: they are compared on those, or the many others would hide what they found.
    """
    signs = [Sign(float(paper[-1, :n].mean() - held[:n].mean()), n) for n in sorted({*counts})]
    return max(signs, key=lambda sign: sign.value - _limit("stronger_attack", sign.images))


def square_wins(correct: Bits) -> float:
    """Share of images that AutoAttack's gradients leave and its random search breaks."""
    return float((correct[0] & ~correct[1]).mean())


def accuracy_not_falling(robust: dict[float, float]) -> float:
    """The largest rise of the accuracy (Eq. 7) from one epsilon to the next larger one."""
    ordered = [robust[epsilon] for epsilon in sorted(robust)]
    return float(max(0.0, *np.diff(ordered))) if len(ordered) > 1 else 0.0


def chance_not_reached(correct: Bits, num_classes: int) -> float:
    """What the attack leaves at LARGE_EPSILON above chance, on the last iterate."""
    return float(correct[-1].mean() - 1 / num_classes)


def worst_case(clean: Bits, attacks: Iterable[Bits]) -> Bits:
    """Which images [N] are right before and on every iterate of every attack on them."""
    held = clean.copy()
    for correct in attacks:
        held[: correct.shape[1]] &= survivors(correct)
    return held


def summarize(clean: Bits, outcomes: dict[str, Outcome]) -> Record:
    """One epsilon: each attack's accuracies, the worst case over all, and the indicators."""
    correct = {name: outcome.correct for name, outcome in outcomes.items()}
    paper, exact = outcomes["paper"], correct["exact"]
    assert paper.loss is not None
    assert paper.gradient_norm is not None
    held = worst_case(clean, correct.values())
    free = [correct[name] for name in ("transfer", "noise", "black_box") if name in correct]
    found = {
        "loss_still_moving": loss_still_moving(paper.correct, paper.loss),
        "adversarial_lost": adversarial_lost(paper.correct),
        "zero_gradients": zero_gradients(paper.correct, clean, paper.gradient_norm),
        "gradient_misleads": gradient_misleads(paper.correct, exact),
        "gradient_free_wins": gradient_free_wins(paper.correct, free),
    }
    signs = {name: Sign(value, len(clean)) for name, value in found.items()}
    counts = [bits.shape[1] for bits in correct.values()]
    signs["stronger_attack"] = stronger_attack(paper.correct, held, counts)
    return {
        "attacks": {name: accuracies(bits) for name, bits in correct.items()},
        "worst_case": float(held.mean()),
        "indicators": against_limits(signs | _flags(outcomes.get("autoattack"))),
    }


def _flags(outcome: Outcome | None) -> dict[str, Sign]:
    if outcome is None or outcome.flags is None:
        return {}
    found = {"square_wins": square_wins(outcome.correct), **outcome.flags}
    return {name: Sign(value, outcome.correct.shape[1]) for name, value in found.items()}


def against_limits(signs: Mapping[str, Sign]) -> dict[str, Record]:
    """Each indicator with its number, its limit, and whether it trips."""
    limits = {name: _limit(name, sign.images) for name, sign in signs.items()}
    return {
        name: {"value": value, "limit": limits[name], "tripped": value > limits[name] + 1e-9}
        for name, (value, _) in signs.items()
    }


def _limit(name: str, images: int) -> float:
    return max(LIMITS[name], 1 / images)


def make_badge(judged: Iterable[dict[str, Record]]) -> str:
    """`sound`, or the indicators that trip at any epsilon, in the order of LIMITS."""
    tripped = {name for part in judged for name, entry in part.items() if entry["tripped"]}
    return ", ".join(name.replace("_", " ") for name in LIMITS if name in tripped) or "sound"
