"""The paper's robust accuracy of any torch model, and whether that robustness is real.

python examples/attack_your_model.py                   attacks the network of plain_pytorch.py
python examples/attack_your_model.py with_tn_and_fdt   attacks the one with TN and FDT

Put your own in place of the three lines marked below: a model that takes images in [0, 1], some
test images and their labels.
"""

import sys
from importlib import import_module

import numpy as np
import torch

from tnfdt import pgd_trajectory, robust_accuracy, set_backward
from tnfdt.audit import indicators
from tnfdt.audit.attacks import survives_noise
from tnfdt.audit.indicators import Outcome

example = import_module(sys.argv[1] if len(sys.argv) > 1 else "plain_pytorch")
model = example.model.eval()  # your model
images, labels = example.test_x[:100] / 255, example.test_y[:100]  # your test images
classes = 10  # your number of classes


def pgd(epsilon: float, backward: str = "exact", **options) -> Outcome:
    """PGD with every iterate judged (Eq. 6); `backward` matters to models with TN alone."""
    found = pgd_trajectory(set_backward(model, backward), images, labels, epsilon, **options)
    return Outcome(found.correct.numpy(), found.loss.numpy(), found.gradient_norm.numpy())


def attacks(epsilon: float) -> dict[str, Outcome]:
    """The paper's attack, and the stronger ones that the harness's audit compares it with."""
    starts = [pgd(epsilon, random_start=True).correct for _ in range(2)]
    noise = survives_noise(
        model, images, labels, epsilon, repeats=40, generator=torch.Generator().manual_seed(0)
    )
    return {
        "paper": pgd(epsilon, "paper"),
        "exact": pgd(epsilon),
        "steps_x2": pgd(epsilon, steps=80),
        "restarts": Outcome(indicators.survivors(np.stack(starts))),
        "noise": Outcome(noise.numpy()[None]),
    }


torch.manual_seed(0)
clean = (model(images).argmax(1) == labels).numpy()
robust, judged = {}, []
for epsilon in (0.1, 0.01):
    trajectory = pgd_trajectory(set_backward(model, "paper"), images, labels, epsilon)
    robust[epsilon] = robust_accuracy(trajectory)  # Eq. 7: right on average over all iterates
    summary = indicators.summarize(clean, attacks(epsilon))
    judged.append(summary["indicators"])
    print(
        f"epsilon {epsilon:g}: robust accuracy {100 * robust[epsilon]:.1f} % by the paper's "
        f"Eq. 7, {100 * summary['worst_case']:.1f} % of the images survive every attack"
    )
at_large = pgd(indicators.LARGE_EPSILON, "paper").correct
whole_model = {
    "accuracy_not_falling": indicators.accuracy_not_falling(robust),
    "chance_not_reached": indicators.chance_not_reached(at_large, classes),
}
signs = {name: indicators.Sign(value, len(images)) for name, value in whole_model.items()}
judged.append(indicators.against_limits(signs))
print(f"badge: {indicators.make_badge(judged)}")
