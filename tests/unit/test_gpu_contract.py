"""The GPU contract, held without a GPU on a pretended device: no mixed devices, no waiting.

A training step waits zero times and copies once, without blocking; a PGD step waits zero times.
What only a real GPU can show is in tests/gpu.
"""

import pytest
import torch

from tests.pretend_cuda import CPU, CUDA, PretendCuda
from tnfdt.attack.trajectory import pgd_trajectory
from tnfdt.audit import autoattack
from tnfdt.audit.attacks import decision_distance, survives_noise, transfer_trajectory
from tnfdt.data.prepared import ImageSet
from tnfdt.models import create_model
from tnfdt.study.machine import load_machine
from tnfdt.study.study import load_study
from tnfdt.train import cell as train_cell
from tnfdt.train import recipe
from tnfdt.train.recipe import Trainer

PAPER, MACHINE = load_study("paper"), load_machine()
STEPS, BATCH = 3, 8


@pytest.fixture(autouse=True)
def one_thread(monkeypatch):
    """And torch's operators for TN: no kernel of Triton's runs on a device that is not there."""
    monkeypatch.setattr("tnfdt.core.tensor_norm.has_fused_kernel", lambda x: False)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def random_set(classes, device, count=None, side=16):
    count, chance = count or max(classes, 32), torch.Generator().manual_seed(0)
    pixels = torch.randint(256, (count, 3, side, side), generator=chance, dtype=torch.uint8)
    labels = (torch.arange(count) % classes).to(device)
    pixels = pixels.to(device)
    return ImageSet(
        train_x=pixels,
        train_y=labels,
        test_x=pixels[:6],
        test_y=labels[:6],
        num_classes=classes,
        fingerprint="f",
    )


def config_of(method, *, model="wrn10_1", **changes):
    cell = next(cell for cell in PAPER.cells if cell.method == method)
    config = PAPER.train_slice(cell, MACHINE) | {"model": model} | changes
    training = {**config["training"], "batch_size": BATCH, "epochs": 1}
    return config | {"training": training}


class EnoughError(Exception):
    """So many steps have been looked at."""


def train(config, data, device, after_step=lambda: None):
    """The losses of the first steps; `after_step` is called after each."""
    trainer = Trainer(config, data, device)

    def look():
        after_step()
        if trainer.step == STEPS:
            raise EnoughError

    after_step()
    with pytest.raises(EnoughError):
        trainer.run(look, lambda row: None)
    return trainer.stats[:STEPS]


def steps_on_gpu(config, classes, *, values, side=16):
    """Waits, copies and kernels of each step, and the losses."""
    seen = []
    with PretendCuda(values=values) as gpu:

        def after_step():
            seen.append((gpu.waits, gpu.copies, gpu.kernels))
            gpu.reset()

        losses = train(config, random_set(classes, CUDA, side=side), CUDA, after_step)
    return seen[1:], losses


@pytest.mark.parametrize("classes", [10, 100])
@pytest.mark.parametrize("method", PAPER.methods)
def test_a_training_step_waits_for_nothing_and_copies_once(method, classes):
    config = config_of(method)
    steps, losses = steps_on_gpu(config, classes, values=True)
    assert [waits for waits, _, _ in steps] == [[]] * STEPS
    assert [len(copies) for _, copies, _ in steps] == [1] * STEPS
    expected = train(config, random_set(classes, CPU), CPU)
    torch.testing.assert_close(losses.inner, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    "changes",
    [
        {"blend": {"series": "random", "amount": "all", "augment": "after", "target": "dominant"}},
        {
            "blend": {
                "series": "harmonic",
                "amount": "uniform",
                "augment": "each",
                "target": "sampled",
            }
        },
        {"augment": {"shift": 0, "flip": False}},
        {"precision": "tf32"},  # in channels_last
    ],
)
def test_nor_does_it_with_other_settings(changes):
    steps, _ = steps_on_gpu(config_of("fdt", **changes), 10, values=False)
    assert [waits for waits, _, _ in steps] == [[]] * STEPS
    assert [len(copies) for _, copies, _ in steps] == [1] * STEPS


CONTROLS = {
    "smooth": {"label_smoothing": {"matched": {"series": "harmonic", "amount": "uniform"}}},
    "mixup": {"mix": {"kind": "mixup", "alpha": 1.0}},
    "cutmix": {"mix": {"kind": "cutmix", "alpha": 1.0}},
    "pgd_at": {"adversarial": {"epsilon": 0.03137, "steps": 3}},
}


@pytest.mark.parametrize("tensor_norm", [None, "paper"])
@pytest.mark.parametrize("control", CONTROLS)
def test_nor_does_it_with_a_control(control, tensor_norm):
    """Adversarial training's attack runs inside the step: it waits for nothing either."""
    config = config_of("vanilla", tensor_norm=tensor_norm, **CONTROLS[control])
    steps, losses = steps_on_gpu(config, 10, values=True)
    assert [waits for waits, _, _ in steps] == [[]] * STEPS
    assert [len(copies) for _, copies, _ in steps] == [1] * STEPS
    expected = train(config, random_set(10, CPU), CPU)
    torch.testing.assert_close(losses.inner, expected, rtol=1e-2, atol=1e-2)


def test_a_blend_of_two_waits_for_nothing():
    two = {"series": "harmonic", "amount": 2, "augment": "each", "target": "distribution"}
    steps, _ = steps_on_gpu(config_of("fdt", blend=two), 10, values=False)
    assert [(waits, len(copies)) for waits, copies, _ in steps] == [([], 1)] * STEPS


@pytest.mark.parametrize("tensor_norm", [None, "paper"])
@pytest.mark.parametrize("model", sorted({cell.model for cell in PAPER.cells}))
def test_every_network_of_the_paper_trains_and_is_attacked(model, tensor_norm, monkeypatch):
    """Shapes only; and the weights of large networks need no start here."""
    monkeypatch.setattr("tnfdt.models._he_init", lambda network: None)
    monkeypatch.setattr("torch.nn.init.kaiming_uniform_", lambda weight, **_: weight)
    monkeypatch.setattr("torch.nn.init.kaiming_normal_", lambda weight, **_: weight)
    with PretendCuda() as gpu:
        config = config_of("fdt", model=model, tensor_norm=tensor_norm)
        trainer, data = Trainer(config, random_set(10, CUDA), CUDA), random_set(10, CUDA)
        batch = trainer.source.batch(tuple(x.to(CUDA) for x in trainer.source.draw(0, 0)))
        gpu.reset()
        trainer.model.train()
        trainer._learn(batch)
        assert gpu.waits == []
        pixels, labels = data.test_x.float() / 255, data.test_y
        found = pgd_trajectory(trainer.model, pixels, labels, 0.1, steps=1)
        assert found.correct.shape == (1, len(labels))


def test_full_distribution_training_costs_five_kernels_a_step():
    """A gather, a conversion and a division each; then the weighted sum, and Alg. 4 for Alg. 3."""
    counts = {}
    for method in ("vanilla", "fdt"):
        steps, _ = steps_on_gpu(config_of(method, model="resnet34"), 10, values=False)
        counts[method] = sum(steps[-1][2].values())
    assert counts["vanilla"] <= 330
    assert counts["fdt"] <= counts["vanilla"] + 5


def test_the_record_says_what_made_the_kernels_of_tn(monkeypatch):
    def named(fused, compiled):
        monkeypatch.setattr(train_cell, "has_fused_kernel", lambda x: fused)
        return train_cell.kernel_of({"compile": compiled}, CPU)

    assert [named(True, False), named(False, False), named(True, True)] == [
        "triton",
        "torch",
        "inductor",
    ]


def test_a_whole_epoch_with_its_checkpoint(monkeypatch):
    """The end of an epoch may wait, but mixes no devices either."""
    # Tensors that wrap others cannot be cut into views in inference mode.
    plain = torch.no_grad()(recipe.predictions.__wrapped__)
    monkeypatch.setattr(recipe, "predictions", plain)
    with PretendCuda(values=True) as gpu:
        data = random_set(10, CUDA)
        trainer = Trainer(config_of("tn_fdt"), data, CUDA)
        trainer.run(lambda: None, lambda row: None)
        again = Trainer(config_of("tn_fdt"), data, CUDA)
        again.restore(trainer.state())
        assert again.history == trainer.history
        assert 0 < len(gpu.waits) < 200


def trained(tensor_norm=None):
    torch.manual_seed(0)
    return create_model("wrn10_1", 10, tensor_norm=tensor_norm).eval()


def pixels_of(device, count=4):
    chance = torch.Generator().manual_seed(0)
    pixels = torch.rand(count, 3, 12, 12, generator=chance)
    return pixels.to(device), (torch.arange(count) % 10).to(device)


@pytest.mark.parametrize("random_start", [False, True])
@pytest.mark.parametrize("tensor_norm", [None, "paper", "exact"])
def test_a_pgd_step_waits_for_nothing(tensor_norm, random_start):
    options = {"epsilon": 0.1, "random_start": random_start}
    waits = []
    with PretendCuda(values=True) as gpu:
        model, (pixels, labels) = trained(tensor_norm).to(CUDA), pixels_of(CUDA)
        for steps in (2, 7):
            gpu.reset()
            chance = torch.Generator().manual_seed(0)
            got = pgd_trajectory(model, pixels, labels, steps=steps, generator=chance, **options)
            waits.append([event.what for event in gpu.waits])
    assert waits[0] == waits[1]
    chance = torch.Generator().manual_seed(0)
    expected = pgd_trajectory(
        trained(tensor_norm), *pixels_of(CPU), steps=7, generator=chance, **options
    )
    torch.testing.assert_close(got.loss.inner, expected.loss, rtol=1e-3, atol=1e-4)


AUDIT = {
    "transfer": lambda model, pixels, labels: (
        transfer_trajectory(model, model, pixels, labels, 0.1, steps=2, rel_stepsize=0.1).loss
    ),
    "noise": lambda model, pixels, labels: survives_noise(
        model, pixels, labels, 0.1, repeats=2, generator=torch.Generator().manual_seed(0)
    ),
    "decisions": lambda model, pixels, labels: decision_distance(
        model, pixels, labels, steps=1, seed=0
    ),
}


@pytest.mark.parametrize("attack", AUDIT)
def test_an_audit_attack_mixes_no_devices(attack):
    with PretendCuda(values=True):
        got = AUDIT[attack](trained("paper").to(CUDA), *pixels_of(CUDA))
    assert got.device == CUDA
    assert got.shape[-1] == 4


def test_autoattack_mixes_no_devices(monkeypatch):
    def hasty(*arguments, standard=autoattack._standard):
        attack = standard(*arguments)
        attack.square.n_queries = 2
        for part in (attack.apgd, attack.apgd_targeted, attack.fab):
            part.n_iter = 1
        return attack

    monkeypatch.setattr(autoattack, "_standard", hasty)
    with PretendCuda(values=True):
        model, (pixels, _) = trained("exact").to(CUDA), pixels_of(CUDA, count=2)
        labels = model(pixels).argmax(1)
        found = autoattack.autoattack(model, pixels, labels, 1e-4, num_classes=4, seed=0)
    assert found.correct.device == CUDA
    assert found.correct.inner.all()  # so that every attack had its turn


class TestThePretendedDevice:
    """It finds what it is there to find."""

    @pytest.mark.parametrize(
        "look",
        [
            lambda x: x.sum().item(),
            lambda x: x.tolist(),
            lambda x: bool((x > 0).all()),
            lambda x: x.cpu(),
            lambda x: x.to("cpu", non_blocking=True),
            lambda x: x[x > 0],
            lambda x: x.nonzero(),
            lambda x: x[torch.tensor([0, 1])],
            lambda x: x + torch.ones(3).to(CUDA),
            lambda x: x + torch.ones(3).to(CUDA, non_blocking=True),
            lambda x: x.copy_(torch.ones(3)),
            lambda x: torch.ones(3).pin_memory().to(CUDA),
        ],
    )
    @pytest.mark.parametrize("values", [False, True])
    def test_what_makes_the_host_wait(self, look, values):
        with PretendCuda(values=values) as gpu:
            x = torch.ones(3).to(CUDA)
            gpu.reset()
            look(x)
            assert len(gpu.waits) >= 1

    def test_what_does_not(self):
        with PretendCuda() as gpu:
            x = torch.ones(3).to(CUDA)
            gpu.reset()
            y = torch.ones(3).pin_memory().to(CUDA, non_blocking=True)
            (x + y).mul_(2).sum()
        assert gpu.waits == []
        assert len(gpu.copies) == 1
        assert gpu.kernels == {"add": 1, "mul_": 1, "sum": 1}

    @pytest.mark.parametrize("values", [False, True])
    def test_mixed_devices(self, values):
        with PretendCuda(values=values), pytest.raises(RuntimeError, match="cuda:0 and on the CPU"):
            torch.ones(3).to(CUDA) + torch.ones(3)
