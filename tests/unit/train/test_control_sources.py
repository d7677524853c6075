"""The controls' batches: those of single images, changed as documented, from draws of the CPU."""

import copy
import math

import numpy as np
import pytest
import torch
from torch import nn

from tnfdt.core import controls as core
from tnfdt.core.seeding import derive, generator
from tnfdt.data.prepared import ImageSet
from tnfdt.study.machine import load_machine
from tnfdt.study.schema import ROOT, read_yaml
from tnfdt.study.study import study_from_dict
from tnfdt.train.batch_sources import make_source
from tnfdt.train.control_sources import smoothing_of, solved
from tnfdt.train.recipe import Trainer

CPU, MACHINE, CLASSES = torch.device("cpu"), load_machine(), 4
ONE_STEP = {"epsilon": 0.1, "steps": 1}
METHODS = {
    "vanilla": {},
    "fdt": {"blend": "harmonic", "target": "distribution"},
    "smooth": {"label_smoothing": "matched"},
    "smooth_01": {"label_smoothing": 0.1},
    "mixup": {"mix": "mixup"},
    "cutmix": {"mix": "cutmix"},
    "fdt2": {"blend": "harmonic", "target": "distribution", "blend_amount": 2},
    "pgd_at": {"adversarial": {"epsilon": 0.1, "steps": 3}},
    "fdt_at": {"blend": True, "target": "distribution", "adversarial": ONE_STEP},
    "smooth_at": {"label_smoothing": 0.1, "adversarial": ONE_STEP},
}
CONTROLS = [name for name in METHODS if name not in ("vanilla", "fdt")]


def config_of(method, **changes):
    raw = read_yaml(ROOT / "config/studies/demo.yaml") | {"methods": copy.deepcopy(METHODS)}
    raw["grid"] = {"t": {"datasets": ["digits"], "models": ["wrn10_1"], "methods": [*METHODS]}}
    raw["training"] = {"batch_size": 5, "epochs": 1, "lr": 0.01}
    study = study_from_dict(raw, name="x", where="x")
    cell = next(cell for cell in study.cells if cell.method == method)
    return study.train_slice(cell, MACHINE) | changes


def data(count=13):
    chance = torch.Generator().manual_seed(0)
    pixels = torch.randint(256, (count, 3, 8, 8), generator=chance, dtype=torch.uint8)
    labels = torch.arange(count) % CLASSES
    rest = {"test_x": pixels[:2], "test_y": labels[:2], "fingerprint": "f"}
    return ImageSet(train_x=pixels, train_y=labels, num_classes=CLASSES, **rest)


def batch_of(method, epoch=1, step=2, **changes):
    source = make_source(config_of(method, **changes), data())
    return source.batch(source.draw(epoch, step))


def test_smoothed_batches_are_vanillas_with_softer_labels():
    plain = batch_of("vanilla")
    for method, smoothing in {"smooth_01": 0.1, "smooth": core.matched_smoothing(4)}.items():
        batch = batch_of(method)
        assert torch.equal(batch.images, plain.images)
        assert torch.equal(batch.classes, plain.classes)
        targets = core.smooth_targets(plain.classes, 4, smoothing)
        assert all(torch.equal(part, targets) for part in batch.table)


@pytest.mark.parametrize("kind", ["mixup", "cutmix"])
def test_mixed_batches_are_vanillas_in_pairs(kind):
    plain, batch = batch_of("vanilla", seed=3), batch_of(kind, seed=3)
    chance = np.random.default_rng(derive(3, "mix/1/2"))
    mix = core.draw_mix(kind, 1.0, 3, (8, 8), chance)
    torch.testing.assert_close(batch.images, core.mix_images(plain.images, mix.partner, mix.keep))
    assert torch.equal(batch.classes, plain.classes)
    assert torch.equal(batch.table[2], core.mix_targets(plain.classes, 4, mix))


def test_a_blend_of_two_has_fdts_draws_and_never_more():
    fdt, two = (make_source(config_of(name), data())._source for name in ("fdt", "fdt2"))
    drawn = []
    for source in (fdt, two):
        source.generator.manual_seed(5)
        drawn.append(source.draw(200))
    assert torch.equal(drawn[0].indices, drawn[1].indices)
    amounts = (drawn[1].weights > 0).sum(1)
    assert {*amounts.tolist()} == {1, 2}
    assert {*(drawn[0].weights > 0).sum(1).tolist()} == {1, 2, 3, 4}


def test_an_attacked_batch_is_vanillas_with_noise():
    plain, batch = batch_of("vanilla", seed=3), batch_of("pgd_at", seed=3)
    assert torch.equal(batch.images, plain.images)
    noise = torch.rand(3, 3, 8, 8, generator=generator(3, "adversarial/1/2")) * 2 - 1
    torch.testing.assert_close(batch.noise, noise)
    assert batch_of("fdt_at").table is not None


@pytest.mark.parametrize("method", CONTROLS)
def test_seed_epoch_and_step_alone_decide(method):
    def same(one, other):
        parts = zip(one, other, strict=True)
        return all(a is b or torch.equal(a, b) for a, b in parts)

    assert same(batch_of(method), batch_of(method))
    assert not same(batch_of(method), batch_of(method, step=1))
    assert not same(batch_of(method), batch_of(method, epoch=0))
    assert not same(batch_of(method), batch_of(method, seed=1))


@pytest.mark.parametrize("method", CONTROLS)
def test_images_come_in_the_layout_asked_for(method):
    source = make_source(config_of(method), data(), torch.channels_last)
    batch = source.batch(source.draw(0, 0))
    assert batch.images.is_contiguous(memory_format=torch.channels_last)


def test_the_record_says_what_matched_came_to():
    assert smoothing_of(config_of("vanilla"), 10) is None
    assert solved(config_of("vanilla"), 10) == {"num_classes": 10}
    assert solved(config_of("smooth_01"), 10) == {"num_classes": 10, "smoothing": 0.1}
    found = solved(config_of("smooth"), 10)["smoothing"]
    assert core.smoothing_entropy(found, 10) == pytest.approx(core.blend_entropy(10))


def reference_step(method):
    """One step of SGD on soft targets and, for adversarial training, on PGD's images."""
    config, images = config_of(method), data()
    trainer = Trainer(config, images, CPU)
    batch = trainer.source.batch(trainer.source.draw(0, 0))
    model, pixels = trainer.model.train(), batch.images
    goal = batch.classes if batch.table is None else batch.table[1]
    if "adversarial" in config:
        epsilon, steps = config["adversarial"]["epsilon"], config["adversarial"]["steps"]
        low, high = (pixels - epsilon).clamp(0, 1), (pixels + epsilon).clamp(0, 1)
        twin = copy.deepcopy(model)  # whose running averages may move
        moved = (pixels + epsilon * batch.noise).clamp(low, high)
        for _ in range(steps):
            moved.requires_grad_()
            loss = nn.functional.cross_entropy(twin(moved), goal)
            (slope,) = torch.autograd.grad(loss, moved)
            moved = (moved.detach() + 2.5 * epsilon / steps * slope.sign()).clamp(low, high)
        pixels = moved
    optimizer = trainer.optimizer
    nn.functional.cross_entropy(model(pixels), goal).backward()
    optimizer.step()
    return model.state_dict()


@pytest.mark.parametrize("method", ["smooth", "mixup", "cutmix", "fdt2", "pgd_at", "smooth_at"])
def test_a_step_is_the_plain_loops(method):
    trainer = Trainer(config_of(method), data(), CPU)
    trainer.model.train()
    trainer._learn(trainer.source.batch(trainer.source.draw(0, 0)))
    for key, value in reference_step(method).items():
        torch.testing.assert_close(trainer.model.state_dict()[key], value, rtol=1e-4, atol=1e-5)
    assert math.isfinite(float(trainer.stats[0].sum()))
