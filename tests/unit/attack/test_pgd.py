"""PGD against iterates written down by hand, against Foolbox's own, and its invariants."""

import copy
import math
from functools import cache

import foolbox
import numpy as np
import pytest
import torch
from torch import nn

from tnfdt.attack import pgd as attack
from tnfdt.attack.pgd import accuracies, frozen
from tnfdt.attack.trajectory import pgd_trajectory, robust_accuracy
from tnfdt.core.tensor_norm import insert_tensor_norm
from tnfdt.models import MODELS, create_model, set_backward
from tnfdt.study.attack_settings import REL_STEPSIZE
from tnfdt.study.schema import UserError

EPSILONS = [0.1, 0.01, 0.001, 0.0001]
LAYOUTS = [torch.contiguous_format, torch.channels_last]


pytestmark = pytest.mark.usefixtures("one_thread")


@cache
def network(name="wrn10_1", tensor_norm=None, dtype=torch.float32):
    """A network with batch statistics and weights of a scale that a training might leave."""
    torch.manual_seed(0)
    model = create_model(name, 4, tensor_norm=tensor_norm).train()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias, std=0.2)
            module.momentum = 0.5
    with torch.no_grad():
        model(torch.rand(8, 3, 8, 8))
    return model.eval().to(dtype)


def batch(model, count=6, size=8, seed=1):
    """Random pixels, some at the bounds, with labels of which about half are right."""
    generator = torch.Generator().manual_seed(seed)
    pixels = torch.rand(count, 3, size, size, generator=generator) * 1.2 - 0.1
    pixels = pixels.clamp(0, 1).to(next(model.parameters()).dtype)
    with torch.no_grad():
        labels = model(pixels).argmax(1)
    wrong = torch.rand(count, generator=generator) < 0.4
    return pixels, torch.where(wrong, (labels + 1) % 4, labels)


def foolbox_pgd(model, images, labels, epsilon, steps=40):
    target = foolbox.PyTorchModel(model, bounds=(0, 1), device="cpu")
    method = foolbox.attacks.LinfPGD(steps=steps, random_start=False)
    return method.run(target, images, foolbox.criteria.Misclassification(labels), epsilon=epsilon)


class Linear(nn.Module):
    """Logits W x + b of images [N, 1, 2, 3]."""

    def __init__(self, weight, bias):
        super().__init__()
        self.weight, self.bias = nn.Parameter(weight), nn.Parameter(bias)

    def forward(self, x):
        return x.flatten(1) @ self.weight.T + self.bias


def softmax(z):
    e = np.exp(z - z.max())
    return e / e.sum()


def pgd_by_hand(weight, bias, image, label, epsilon, alpha, steps):
    """Eq. 6 for one image of a linear softmax model, whose gradient is W'(p - onehot)."""
    start, x, right, loss, norm = image.copy(), image.copy(), [], [], []
    for _ in range(steps):
        p = softmax(weight @ x + bias)
        p[label] -= 1
        gradient = weight.T @ p
        norm.append(np.abs(gradient).sum())
        for i in range(len(x)):
            x[i] = x[i] + alpha * np.sign(gradient[i])
            x[i] = start[i] + min(max(x[i] - start[i], -epsilon), epsilon)
            x[i] = min(max(x[i], 0.0), 1.0)
        z = weight @ x + bias
        right.append(z.argmax() == label)
        loss.append(-np.log(softmax(z)[label]))
    return x, right, loss, norm


@pytest.mark.parametrize("epsilon", [0.3, 0.05, 0.001])
def test_a_linear_model_is_attacked_as_by_hand(epsilon):
    rng = np.random.default_rng(3)
    weight, bias = rng.normal(size=(3, 6)) * 2, rng.normal(size=3) * 0.1
    images, labels = rng.uniform(size=(40, 6)), rng.integers(0, 3, size=40)
    images[:, 0], images[:, 1] = 0.0, 1.0
    labels[:25] = (images @ weight.T + bias).argmax(1)[:25]
    tensors = [torch.tensor(value) for value in (weight, bias, images, labels)]
    model = Linear(*tensors[:2])
    got = pgd_trajectory(model, tensors[2].view(-1, 1, 2, 3), tensors[3], epsilon, steps=40)
    runs = [
        pgd_by_hand(weight, bias, image, label, epsilon, epsilon * REL_STEPSIZE, 40)
        for image, label in zip(images, labels, strict=True)
    ]
    last, right, loss, norm = (np.array(column) for column in zip(*runs, strict=True))
    np.testing.assert_allclose(got.adversarial.flatten(1).numpy(), last, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(got.correct.numpy(), right.T)
    np.testing.assert_allclose(got.loss.numpy(), loss.T, rtol=1e-9)
    np.testing.assert_allclose(got.gradient_norm.numpy(), norm.T, rtol=1e-9)
    clean = (images @ weight.T + bias).argmax(1)
    np.testing.assert_array_equal(got.predictions.numpy(), clean)
    np.testing.assert_array_equal(got.clean.numpy(), clean == labels)
    assert robust_accuracy(got) == pytest.approx(sum(map(sum, right)) / right.size, abs=1e-15)
    assert epsilon < 0.01 or 0 < robust_accuracy(got) < clean.mean()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("epsilon", [0.1, 0.0001])
@pytest.mark.parametrize("tensor_norm", [None, "paper", "exact"])
def test_adversarials_are_those_of_foolbox_to_the_last_bit(
    tensor_norm, epsilon, layout, monkeypatch
):
    monkeypatch.setattr(attack, "LARGE", 0)
    model = network(tensor_norm=tensor_norm)
    images, labels = batch(model)
    images = images.contiguous(memory_format=layout)
    got = pgd_trajectory(model, images, labels, epsilon)
    assert torch.equal(got.adversarial, foolbox_pgd(model, images, labels, epsilon))
    assert got.adversarial.is_contiguous(memory_format=layout)


@pytest.mark.parametrize("epsilon", [0.1, 0.001])
def test_the_memory_format_changes_nothing_but_rounding(epsilon):
    """In double precision no sign of a gradient is left to chance."""
    model = network(tensor_norm="paper", dtype=torch.float64)
    images, labels = batch(model)
    plain = pgd_trajectory(model, images, labels, epsilon)
    last = pgd_trajectory(model, images.to(memory_format=LAYOUTS[1]), labels, epsilon)
    assert torch.equal(plain.adversarial, last.adversarial)
    assert torch.equal(plain.correct, last.correct)


def test_every_iterate_is_judged_as_if_the_attack_had_ended_there():
    model = network(tensor_norm="paper")
    images, labels = batch(model)
    got = pgd_trajectory(model, images, labels, 0.1, steps=12)
    for step in range(1, 13):
        iterate = foolbox_pgd(model, images, labels, 0.1, steps=step)
        assert torch.equal(got.correct[step - 1], model(iterate).argmax(1) == labels)
        loss = nn.functional.cross_entropy(model(iterate), labels, reduction="none")
        torch.testing.assert_close(got.loss[step - 1], loss)
    assert not torch.equal(got.correct[0], got.correct[-1])
    assert torch.equal(got.clean, model(images).argmax(1) == labels)


def test_eq_7_costs_one_forward_pass_in_all():
    model, calls = network(), []
    images, labels = batch(model)
    hook = model.register_forward_hook(lambda *_: calls.append(1))
    pgd_trajectory(model, images, labels, 0.1, steps=7)
    hook.remove()
    assert len(calls) == 8


@pytest.mark.parametrize("name", MODELS)
def test_iterates_stay_in_the_ball_and_in_bounds(name):
    """Pixels are floats near 1, so a ball of 1e-4 has an edge that is rounded by 2^-25."""
    model = create_model(name, 4).eval()
    for method in ("vanilla", "paper", "exact"):
        if method == "paper":
            insert_tensor_norm(model)
        set_backward(model, "exact" if method == "exact" else "paper")
        images, labels = batch(model, count=2)
        for epsilon in EPSILONS:
            got = pgd_trajectory(model, images, labels, epsilon, steps=1, rel_stepsize=1.5)
            moved = (got.adversarial.double() - images.double()).abs().max()
            assert 0.99 * epsilon < moved <= epsilon * (1 + 1e-6) + 2**-25
            assert got.adversarial.min() >= 0
            assert got.adversarial.max() <= 1
        tiny = pgd_trajectory(model, images, labels, 1e-12, steps=1)
        assert torch.equal(tiny.correct[0], tiny.clean)


def test_in_double_precision_the_ball_is_kept_to_one_part_in_a_million():
    model = network(dtype=torch.float64)
    images, labels = batch(model)
    for epsilon in EPSILONS:
        moved = (pgd_trajectory(model, images, labels, epsilon).adversarial - images).abs().max()
        assert 0.99 * epsilon < moved <= epsilon * (1 + 1e-6)


def test_a_random_start_is_seeded_and_inside_the_ball():
    model = network()
    images, labels = batch(model)

    def run(seed):
        generator = torch.Generator().manual_seed(seed)
        options = {"steps": 3, "random_start": True, "generator": generator}
        return pgd_trajectory(model, images, labels, 0.1, **options)

    first, again, other = run(0), run(0), run(1)
    assert torch.equal(first.adversarial, again.adversarial)
    assert not torch.equal(first.adversarial, other.adversarial)
    moved = first.adversarial - images
    assert moved.abs().max() <= 0.1 * (1 + 1e-6)
    assert moved.min() < -0.09  # three steps alone come no farther than 0.01
    assert moved.max() > 0.09
    assert first.correct.shape == first.loss.shape == first.gradient_norm.shape == (3, 6)
    assert torch.equal(first.predictions, model(images).argmax(1))
    last = model(first.adversarial).argmax(1) == labels
    assert torch.equal(first.correct[-1], last)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_lean_batch_norm_is_torchs_own_to_the_last_bit(layout, dtype, monkeypatch):
    model = network(dtype=dtype)
    images, labels = batch(model)
    images = images.contiguous(memory_format=layout)
    monkeypatch.setattr(attack, "LARGE", 0)
    lean = pgd_trajectory(model, images, labels, 0.1, steps=5)
    monkeypatch.setattr(attack, "LARGE", math.inf)
    own = pgd_trajectory(model, images, labels, 0.1, steps=5)
    for name in ("adversarial", "correct", "loss", "gradient_norm"):
        assert torch.equal(getattr(lean, name), getattr(own, name)), name


def test_other_batch_norms_are_left_to_torch():
    x = torch.rand(4, 3, 2, 2)
    with attack._LeanBatchNorm():
        for norm in (nn.BatchNorm2d(3), nn.BatchNorm2d(3, affine=False).eval()):
            assert norm(x).grad_fn is None or "Eval" not in type(norm(x).grad_fn).__name__
        plain = nn.BatchNorm2d(3, track_running_stats=False).eval()
        assert "Eval" not in type(plain(x).grad_fn).__name__


def state_of(model):
    modes = [module.training for module in model.modules()]
    flags = [(parameter.requires_grad, parameter.grad) for parameter in model.parameters()]
    return modes, flags, [value.tolist() for value in model.state_dict().values()]


def fails_inside(model):
    with frozen(model):
        assert not any(parameter.requires_grad for parameter in model.parameters())
        assert not any(module.training for module in model.modules())
        raise RuntimeError("boom")


def test_the_model_is_given_back_as_it_was():
    model = copy.deepcopy(network())
    images, labels = batch(model)
    model.train().requires_grad_()
    model[1].stem.eval()
    next(model.parameters()).requires_grad_(False)
    before = state_of(model)
    pgd_trajectory(model, images, labels, 0.1, steps=2)
    assert state_of(model) == before
    with pytest.raises(RuntimeError, match="boom"):
        fails_inside(model)
    assert state_of(model) == before


BAD = [
    ({"epsilon": 0.0}, "epsilon is 0"),
    ({"epsilon": -0.1}, "epsilon is -0.1"),
    ({"epsilon": math.nan}, "epsilon is nan"),
    ({"epsilon": math.inf}, "epsilon is inf"),
    ({"images": torch.zeros(0, 3, 8, 8), "labels": torch.zeros(0).long()}, "no test images"),
    ({"labels": torch.zeros(3).long()}, "2 images but labels of shape"),
    ({"images": torch.zeros(2, 3, 8, 8, dtype=torch.uint8)}, "give floats"),
    ({"images": torch.full((2, 3, 8, 8), 1.5)}, "outside the bounds"),
    ({"images": torch.full((2, 3, 8, 8), math.nan)}, "outside the bounds"),
    ({"steps": 0}, "steps is 0"),
    ({"rel_stepsize": 0.0}, "rel_stepsize 0"),
]


@pytest.mark.parametrize(("change", "message"), BAD)
def test_bad_input_is_refused_in_one_line(change, message):
    good = {"images": torch.zeros(2, 3, 8, 8), "labels": torch.zeros(2).long(), "epsilon": 0.1}
    with pytest.raises(UserError, match=message) as error:
        pgd_trajectory(network(), **{**good, **change})
    assert "\n" not in str(error.value)


def test_three_readings_of_the_same_iterates():
    correct = np.array([[1, 1, 0, 1], [0, 1, 0, 1], [1, 1, 0, 0]], dtype=bool)
    assert accuracies(correct) == {
        "robust_accuracy": 7 / 12,
        "last_accuracy": 2 / 4,
        "worst_accuracy": 1 / 4,
    }
