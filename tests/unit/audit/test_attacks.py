"""The attacks of the audit, on networks whose answers are known."""

import pytest
import torch
from torch import nn

from tnfdt.attack.trajectory import pgd_trajectory
from tnfdt.audit import attacks


class Half(nn.Module):
    """Class 1 where the mean over pixels, weighted, exceeds a threshold: distances are known."""

    def __init__(self, threshold=0.5, sign=1.0):
        super().__init__()
        self.threshold, self.sign = threshold, nn.Parameter(torch.tensor(sign))

    def forward(self, x):
        margin = self.sign * (x.flatten(1).mean(1) - self.threshold)
        return torch.stack([-margin, margin], 1) * 10


def grey(*values):
    return torch.tensor(values).view(-1, 1, 1, 1).expand(-1, 3, 4, 4).contiguous()


def test_a_transfer_follows_one_network_and_is_judged_by_the_other():
    images, labels = grey(0.52, 0.58, 0.48), torch.tensor([1, 1, 0])
    options = {"steps": 40, "rel_stepsize": 0.05}
    own = pgd_trajectory(Half(), images, labels, 0.1, **options)
    assert not own.correct[-1].any()
    stricter = attacks.transfer_trajectory(Half(), Half(0.45), images, labels, 0.1, **options)
    torch.testing.assert_close(stricter.adversarial, own.adversarial)
    judged = [(Half(0.45)(own.adversarial).argmax(1) == labels).tolist()]
    assert stricter.correct[-1:].tolist() == judged
    assert stricter.clean.tolist() == [True, True, False]
    opposed = attacks.transfer_trajectory(Half(sign=-1.0), Half(), images, labels, 0.1, **options)
    assert opposed.correct.all()


def test_noise_breaks_only_what_lies_at_the_boundary():
    images, labels = grey(0.5001, 0.7, 0.3), torch.tensor([1, 1, 1])

    def run(seed):
        generator = torch.Generator().manual_seed(seed)
        options = {"repeats": 20, "generator": generator}
        return attacks.survives_noise(Half(), images, labels, 0.1, **options).tolist()

    assert run(0) == run(0) == [False, True, False]


def test_noise_stays_in_its_ball():
    images, seen = torch.full((20, 3, 4, 4), 0.5), []

    class Watching(Half):
        def forward(self, x):
            seen.append(float((x - images).abs().max()))
            return super().forward(x)

    options = {"repeats": 20, "generator": torch.Generator().manual_seed(0)}
    attacks.survives_noise(Watching(), images, torch.zeros(20).long(), 0.1, **options)
    assert 0.0999 < max(seen) <= 0.1 * (1 + 1e-6)


def test_decisions_alone_find_the_distance_to_the_boundary():
    images, labels = grey(0.6, 0.75, 0.1, 0.3), torch.tensor([1, 1, 0, 1])
    torch.manual_seed(1)
    before = torch.get_rng_state()
    distance = attacks.decision_distance(Half(), images, labels, steps=5, seed=0)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    again = attacks.decision_distance(Half(), images, labels, steps=5, seed=0)
    assert torch.equal(distance, again)
    true = torch.tensor([0.1, 0.25, 0.4])
    assert (distance[:3] >= true * (1 - 1e-4)).all()  # nothing nearer exists
    assert (distance[:3] <= true * 1.15).all()
    assert distance[3] == 0
    alone = attacks.decision_distance(Half(), images[:2], labels[:2], steps=2, seed=0)
    assert alone.isinf().all()


def test_a_gpu_that_is_not_in_use_is_not_touched(monkeypatch):
    """A process that asks a GPU for its generator's state takes memory on it."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda device: pytest.fail(f"{device}"))
    images, labels = grey(0.6, 0.75), torch.tensor([1, 1])
    attacks.decision_distance(Half(), images, labels, steps=1, seed=0)


def test_the_nearest_mistake_is_an_image_with_another_prediction():
    images, labels = grey(0.6, 0.7, 0.1, 0.4), torch.tensor([1, 1, 0, 0])
    predictions = torch.tensor([1, 1, 0, 0])
    assert attacks.nearest_mistakes(images, predictions, labels).tolist() == [3, 3, 0, 0]
    assert attacks.nearest_mistakes(images[:2], predictions[:2], labels[:2]).tolist() == [-1, -1]
