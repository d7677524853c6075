"""AutoAttack and the audit's badge on networks whose true robustness is known."""

import logging
import sys

import numpy as np
import pytest
import torch
from torch import nn

from tnfdt.attack.cell import Target
from tnfdt.audit import autoattack as module
from tnfdt.audit import cell as audit_cell
from tnfdt.audit.autoattack import FLAGS, autoattack
from tnfdt.files.atomic import read_arrays
from tnfdt.study.attack_settings import REL_STEPSIZE

EPSILON, CLASSES, COUNT = 0.03, 5, 20


pytestmark = pytest.mark.usefixtures("one_thread")


class Linear(nn.Module):
    """A linear network on 3×4×4 pixels; `scale` changes no prediction, but saturates softmax."""

    def __init__(self, scale=1.0, probabilities=False):
        super().__init__()
        draws = torch.Generator().manual_seed(1)
        self.weight = nn.Parameter(torch.randn(CLASSES, 48, generator=draws))
        self.scale, self.probabilities = scale, probabilities

    def forward(self, x):
        logits = self.scale * (x - 0.5).flatten(1) @ self.weight.T
        return logits.softmax(1) if self.probabilities else logits


def pixels():
    draws = torch.Generator().manual_seed(2)
    return torch.randint(256, (COUNT, 3, 4, 4), generator=draws, dtype=torch.uint8)


IMAGES = pixels().float() / 255
LABELS = Linear()(IMAGES).argmax(1)


def truly_robust(epsilon):
    """Which images no point of the ball and of [0, 1] can turn: the best step is a corner."""
    weight, robust = Linear().weight.detach().double(), []
    for image, label in zip(IMAGES.double().flatten(1), LABELS.tolist(), strict=True):
        low, high = (image - epsilon).clamp(min=0), (image + epsilon).clamp(max=1)
        margins = []
        for other in set(range(CLASSES)) - {label}:
            slope = weight[label] - weight[other]
            worst = torch.where(slope > 0, low, high)
            margins.append(float((slope * (worst - 0.5)).sum()))
        robust.append(min(margins) > 0)
    return robust


TRUTH = truly_robust(EPSILON)


def test_a_linear_network_gets_its_exact_robust_accuracy():
    assert 0.2 < np.mean(TRUTH) < 0.8
    found = autoattack(Linear(), IMAGES, LABELS, EPSILON, num_classes=CLASSES, seed=0)
    assert found.correct[1].tolist() == TRUTH
    assert not any(found.flags.values())


@pytest.mark.parametrize("classes", [2, 3])
def test_fewer_classes_than_the_targeted_loss_needs(classes):
    class Few(Linear):
        def forward(self, x):
            return super().forward(x)[:, :classes]

    labels = Few()(IMAGES[:4]).argmax(1)
    found = autoattack(Few(), IMAGES[:4], labels, 0.5, num_classes=classes, seed=0)
    assert not found.correct.any()


def test_a_mistake_stays_a_mistake_and_nothing_outside_is_touched():
    labels = (LABELS[:3] + 1) % CLASSES
    model, logger = Linear().train(), logging.getLogger("auto-attack")
    before, tracer = (torch.get_rng_state(), logger.propagate, [*logger.handlers]), sys.gettrace()
    layout = IMAGES[:3].contiguous(memory_format=torch.channels_last)
    found = autoattack(model, layout, labels, 0.001, num_classes=CLASSES, seed=0)
    assert not found.correct.any()
    assert torch.equal(torch.get_rng_state(), before[0])
    assert (logger.propagate, logger.handlers) == before[1:]
    assert sys.gettrace() is tracer
    assert model.training
    assert model.weight.requires_grad
    assert model.weight.grad is None


class Noisy(Linear):
    def forward(self, x):
        return super().forward(x) + torch.randn(len(x), CLASSES)


class Dynamic(Linear):
    def forward(self, x):
        with torch.enable_grad():
            leaf = x.detach().requires_grad_()
            torch.autograd.grad(super().forward(leaf).sum(), leaf)
        return super().forward(x)


@pytest.mark.parametrize(
    ("model", "flag"),
    [
        (Noisy(), "randomized"),
        (Dynamic(), "dynamic"),
        (Linear(1e5, probabilities=True), "probabilities"),
        (Linear(1e5, probabilities=True), "apgd_zero_gradients"),
    ],
)
def test_each_flag_is_read(model, flag):
    images, labels = IMAGES[:3], LABELS[:3]
    assert autoattack(model, images, labels, 0.3, num_classes=CLASSES, seed=0).flags[flag]


def test_a_flag_of_one_network_is_not_anothers():
    autoattack(Dynamic(), IMAGES[:2], LABELS[:2], 0.3, num_classes=CLASSES, seed=0)
    after = autoattack(Linear(), IMAGES[:2], LABELS[:2], 0.3, num_classes=CLASSES, seed=0)
    assert after.flags == dict.fromkeys(FLAGS, False)


CONFIG = {
    "epsilons": [EPSILON],
    "steps": 40,
    "rel_stepsize": REL_STEPSIZE,
    "random_start": False,
    "restarts": 1,
    "black_box": 0,
    "limit": None,
    "batch_size": COUNT,
    "autoattack": {"images": None, "epsilons": [EPSILON]},
}
IDENTITY = {"study": "s", "dataset": "d", "model": "m", "method": "x", "seed": 0}


def hasty(*arguments, standard=module._standard):
    attack = standard(*arguments)
    attack.square.n_queries = 50
    return attack


def audit(model, out, monkeypatch, **change):
    """The audit of a network made here instead of one that was trained; Square gives up soon."""
    made = {"model_sha256": "0", "dataset_fingerprint": "0", "interpretation": {}}
    target = Target(
        model=model,
        record={**made, "config": {"tensor_norm": None}},
        images=pixels(),
        labels=LABELS,
        indices=torch.arange(COUNT),
        count=COUNT,
        precision="fp32",
        num_classes=CLASSES,
    )
    monkeypatch.setattr(audit_cell, "load_target", lambda *places, **options: target)
    monkeypatch.setattr(module, "_standard", hasty)
    places = {"out": out, "train_dir": out, "data_dir": out, "vanilla_dir": None}
    options = {"device": torch.device("cpu"), "identity": IDENTITY, "progress": False}
    return audit_cell.run(config=CONFIG | change, **places, **options)


def test_the_audit_of_a_linear_network_is_exact(tmp_path, monkeypatch):
    record = audit(Linear(), tmp_path, monkeypatch)
    entry = record["epsilons"]["0.03"]
    assert entry["worst_case"] == entry["attacks"]["autoattack"]["worst_accuracy"] == np.mean(TRUTH)
    assert not entry["indicators"]["stronger_attack"]["tripped"]
    stored = read_arrays(tmp_path / "audit.npz")
    assert stored["eps0.03_autoattack_correct"][1].tolist() == TRUTH


@pytest.mark.parametrize("random_start", [False, True])
@pytest.mark.parametrize("steps", [1, 40])
def test_masked_gradients_are_sound_under_no_reading(random_start, steps, tmp_path, monkeypatch):
    """A saturated softmax has no gradient: PGD stands still, and the network looks robust."""
    reading = {"random_start": random_start, "steps": steps}
    record = audit(Linear(1e5), tmp_path, monkeypatch, **reading)
    entry = record["epsilons"]["0.03"]
    paper, caught = entry["attacks"]["paper"], entry["attacks"]["autoattack"]
    assert paper["robust_accuracy"] > np.mean(TRUTH) + 0.2
    assert caught["worst_accuracy"] == np.mean(TRUTH)
    for badge in (record["badge"], entry["badge"]):
        assert "stronger attack" in badge
        assert "zero gradients" in badge


def test_autoattack_on_few_images_is_judged_on_those(tmp_path, monkeypatch):
    few = {"images": 10, "epsilons": [EPSILON]}
    entry = audit(Linear(1e5), tmp_path, monkeypatch, autoattack=few)["epsilons"]["0.03"]
    assert entry["indicators"]["stronger_attack"]["value"] == pytest.approx(1 - np.mean(TRUTH[:10]))
    assert entry["indicators"]["stronger_attack"]["limit"] == 1 / 10


def test_without_the_library_the_audit_says_so(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(audit_cell, "is_installed", lambda: False)
    entry = audit(Linear(), tmp_path, monkeypatch)["epsilons"]["0.03"]
    assert entry["not_run"] == {"autoattack": "not installed"}
    assert "autoattack" not in entry["attacks"]
    assert "pip install pyautoattack" in capsys.readouterr().err
    assert module.is_installed()


def test_an_audit_cut_short_within_autoattack_goes_on_with_the_same_bytes(tmp_path, monkeypatch):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    audit(Linear(), whole, monkeypatch, batch_size=10)
    calls = []

    def stops(*arguments, **options):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return autoattack(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(audit_cell, "autoattack", stops)
        patch.setattr("tnfdt.attack.batches.SAVE_SECONDS", 0.0)
        with pytest.raises(KeyboardInterrupt):
            audit(Linear(), cut, monkeypatch, batch_size=10)
        assert not (cut / "audit.json").exists()
        audit(Linear(), cut, monkeypatch, batch_size=10)
    assert len(calls) == 3  # the first batch was not done again
    assert (cut / "audit.npz").read_bytes() == (whole / "audit.npz").read_bytes()
