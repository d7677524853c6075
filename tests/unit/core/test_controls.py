"""The controls against naive loops in float64, and mixup and CutMix against timm's own."""

import math

import numpy as np
import pytest
import torch
from timm.data.mixup import Mixup
from torch import nn

from tnfdt.core import controls
from tnfdt.core.full_distribution import FullDistribution


def entropy(shares):
    return -sum(share * math.log(share) for share in shares if share > 0)


def harmonic(n):
    factors = [1 / i for i in range(1, n + 1)]
    return [factor / sum(factors) for factor in factors]


@pytest.mark.parametrize("classes", [2, 3, 10, 100])
def test_matched_smoothing_has_the_mean_entropy_of_the_blends(classes):
    wanted = sum(entropy(harmonic(n)) for n in range(1, classes + 1)) / classes
    assert controls.blend_entropy(classes) == pytest.approx(wanted, rel=1e-12)
    smoothing = controls.matched_smoothing(classes)
    assert 0 < smoothing < 1
    row = [smoothing / classes] * classes
    row[0] += 1 - smoothing
    assert entropy(row) == pytest.approx(wanted, rel=1e-12)


def test_matched_smoothing_follows_the_blends_drawn():
    """The closed form is what FullDistribution's targets have on average."""
    images = torch.zeros(10, 1, 2, 2, dtype=torch.uint8)
    source = FullDistribution(
        images, torch.arange(10), 10, generator=torch.Generator().manual_seed(0)
    )
    drawn = torch.special.entr(source.batch(20000).targets.double()).sum(1)
    error = float(drawn.std()) / math.sqrt(len(drawn))
    assert abs(float(drawn.mean()) - controls.blend_entropy(10)) < 4 * error


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"amount": "all"}, entropy(harmonic(10))),
        ({"amount": 1}, 0.0),
        ({"amount": 2}, entropy(harmonic(2)) / 2),
        ({"amount": 99}, sum(entropy(harmonic(n)) for n in range(1, 11)) / 10),
        ({"amount": 2, "series": "uniform"}, math.log(2) / 2),
    ],
)
def test_the_entropy_of_other_blends(options, wanted):
    assert controls.blend_entropy(10, **options) == pytest.approx(wanted, rel=1e-12, abs=1e-15)


def test_the_ends_of_matched_smoothing():
    assert controls.matched_smoothing(10, amount=1) == pytest.approx(0, abs=1e-15)
    everything = {"series": "uniform", "amount": "all"}
    assert controls.matched_smoothing(10, **everything) == pytest.approx(1, abs=1e-6)
    with pytest.raises(ValueError, match="random"):
        controls.matched_smoothing(10, series="random")


def test_smooth_targets_are_torchs_label_smoothing():
    torch.manual_seed(0)
    logits, classes = torch.randn(6, 5), torch.tensor([0, 4, 2, 2, 1, 3])
    ours = nn.functional.cross_entropy(logits, controls.smooth_targets(classes, 5, 0.3))
    torchs = nn.functional.cross_entropy(logits, classes, label_smoothing=0.3)
    torch.testing.assert_close(ours, torchs)


def naive(images, labels, mix, num_classes):
    """Pixel by pixel, in float64."""
    mixed, targets = np.zeros(images.shape), np.zeros((len(images), num_classes))
    for n, m in enumerate(mix.partner.tolist()):
        for c, y, x in np.ndindex(*images.shape[1:]):
            pair, keep = (float(images[n, c, y, x]), float(images[m, c, y, x])), mix.keep[y, x]
            mixed[n, c, y, x] = keep * pair[0] + (1 - keep) * pair[1]
        targets[n, labels[n]] += mix.share
        targets[n, labels[m]] += 1 - mix.share
    return torch.from_numpy(mixed), torch.from_numpy(targets)


@pytest.mark.parametrize("kind", ["mixup", "cutmix"])
@pytest.mark.parametrize("seed", range(4))
def test_mixes_are_the_naive_loops(kind, seed):
    torch.manual_seed(seed)
    images, labels = torch.rand(5, 3, 6, 4, dtype=torch.float64), torch.tensor([0, 1, 1, 2, 0])
    mix = controls.draw_mix(kind, 1.0, 5, (6, 4), np.random.default_rng(seed))
    assert sorted(mix.partner.tolist()) == [0, 1, 2, 3, 4]
    assert mix.share == pytest.approx(float(mix.keep.mean()))
    if kind == "cutmix":
        assert {*mix.keep.flatten().tolist()} <= {0.0, 1.0}
    mixed, targets = naive(images, labels, mix, 3)
    found = controls.mix_images(images, mix.partner, mix.keep)
    torch.testing.assert_close(found, mixed, rtol=0, atol=1e-15)
    found = controls.mix_targets(labels, 3, mix)
    torch.testing.assert_close(found.double(), targets, rtol=0, atol=1e-7)
    torch.testing.assert_close(found.sum(1), torch.ones(5))


def same_draws(kind, seed, size, shape):
    """What timm draws from numpy's global generator, as a Mix of ours; its partner is the flip."""
    np.random.seed(seed)
    np.random.rand()  # whether to mix at all: always
    share = np.random.beta(0.7, 0.7)
    keep = torch.full(shape, share, dtype=torch.float64)
    if kind == "cutmix":
        centre = (np.random.randint(0, shape[0]), np.random.randint(0, shape[1]))
        keep = controls.cut_out(shape, share, centre)
    return controls.Mix(torch.arange(size).flip(0), float(keep.mean()), keep)


@pytest.mark.parametrize("kind", ["mixup", "cutmix"])
@pytest.mark.parametrize("seed", range(8))
def test_mixes_are_timms(kind, seed):
    torch.manual_seed(seed)
    images, labels = torch.rand(6, 3, 9, 7), torch.randint(5, (6,))
    alphas = {"mixup_alpha": 0.0, "cutmix_alpha": 0.0, f"{kind}_alpha": 0.7}
    timms = Mixup(**alphas, label_smoothing=0.0, num_classes=5)
    state = np.random.get_state()
    try:
        mix = same_draws(kind, seed, 6, (9, 7))
        np.random.seed(seed)
        mixed, targets = timms(images.clone(), labels)
    finally:
        np.random.set_state(state)
    torch.testing.assert_close(controls.mix_images(images, mix.partner, mix.keep), mixed)
    torch.testing.assert_close(controls.mix_targets(labels, 5, mix), targets)


def test_the_draws_of_a_mix_are_those_of_its_generator():
    def draws(seed, kind="cutmix"):
        mix = controls.draw_mix(kind, 1.0, 50, (32, 32), np.random.default_rng(seed))
        return mix.share, mix.keep.tolist(), mix.partner.tolist()

    assert draws(1) == draws(1) != draws(2)
    shares = [controls.draw_mix("mixup", 0.2, 2, (1, 1), np.random.default_rng(s)).share
              for s in range(2000)]  # fmt: skip
    assert np.mean(shares) == pytest.approx(0.5, abs=0.04)
    assert np.var(shares) == pytest.approx(0.25 / (2 * 0.2 + 1), rel=0.1)  # of a Beta(0.2, 0.2)


def naive_pgd(weight, label, image, noise, epsilon, steps):
    """PGD up the cross-entropy of a linear model, coordinate by coordinate."""
    low = [max(v - epsilon, 0.0) for v in image]
    high = [min(v + epsilon, 1.0) for v in image]

    def clip(values):
        return [min(max(v, a), b) for v, a, b in zip(values, low, high, strict=True)]

    moved = clip([v + epsilon * n for v, n in zip(image, noise, strict=True)])
    for _ in range(steps):
        logits = [sum(w * v for w, v in zip(row, moved, strict=True)) for row in weight]
        top = max(logits)
        exps = [math.exp(value - top) for value in logits]
        error = [e / sum(exps) - (k == label) for k, e in enumerate(exps)]
        slopes = [sum(e * row[i] for e, row in zip(error, weight, strict=True))
                  for i in range(len(image))]  # fmt: skip
        step = 2.5 * epsilon / steps
        ahead = [v + step * np.sign(slope) for v, slope in zip(moved, slopes, strict=True)]
        moved = clip(ahead)
    return moved


@pytest.mark.parametrize("steps", [1, 3, 7])
def test_adversarial_images_are_the_naive_loops(steps):
    torch.manual_seed(steps)
    weight, labels = torch.randn(4, 6, dtype=torch.float64), torch.tensor([0, 3, 1])
    images, noise = torch.rand(3, 6, dtype=torch.float64), torch.rand(3, 6).double() * 2 - 1

    def loss(x):
        return nn.functional.cross_entropy(x @ weight.T, labels)

    found = controls.adversarial_images(loss, images, noise, epsilon=0.2, steps=steps)
    for n in range(3):
        one = (weight.tolist(), int(labels[n]), images[n].tolist(), noise[n].tolist())
        assert found[n].tolist() == pytest.approx(naive_pgd(*one, 0.2, steps), abs=1e-12)
    assert not found.requires_grad


def test_adversarial_images_stay_in_the_ball_and_cross_it():
    torch.manual_seed(0)
    images, noise = torch.rand(4, 3, 5, 5), torch.rand(4, 3, 5, 5) * 2 - 1
    found = controls.adversarial_images(torch.sum, images, noise, epsilon=0.1, steps=3)
    assert ((found - images).abs() <= 0.1 + 1e-6).all()
    torch.testing.assert_close(found, (images + 0.1).clamp(max=1))


@pytest.mark.parametrize("training", [True, False])
def test_the_attack_inside_the_training_sees_batch_statistics_and_leaves_the_running(training):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)).train(training)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    images = torch.rand(8, 3, 4, 4)
    with controls.batch_statistics(model):
        inside = model(images)
    torch.testing.assert_close(inside.mean((0, 2, 3)), torch.zeros(4), atol=1e-6, rtol=0)
    for key, value in model.state_dict().items():
        assert torch.equal(value, before[key]), key
    assert model.training is model[1].training is training
    model.train()(images)
    assert not torch.equal(model[1].running_mean, before["1.running_mean"])


def test_timms_batch_norms_obey_as_well():
    from tnfdt.models import create_model

    model = create_model("wrn10_1", 4).train()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    with controls.batch_statistics(model), torch.no_grad():
        model(torch.rand(2, 3, 8, 8))
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
