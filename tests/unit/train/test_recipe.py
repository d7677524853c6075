"""The recipe against a plain reading of it, and a training cut in two against an uncut one."""

import pytest
import torch

from tnfdt.core.losses import multi_class_log_loss, multi_label_log_loss
from tnfdt.data.prepared import ImageSet
from tnfdt.study.machine import load_machine
from tnfdt.study.schema import UserError
from tnfdt.study.study import load_study
from tnfdt.train.batch_sources import make_source
from tnfdt.train.feed import batches
from tnfdt.train.recipe import Trainer, accuracy, build_model

CPU = torch.device("cpu")


pytestmark = pytest.mark.usefixtures("one_thread")


def tiny_set(count=30, test=12, side=8):
    generator = torch.Generator().manual_seed(0)
    shape = (count + test, 3, side, side)
    pixels = torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8)
    labels = torch.arange(count + test) % 3
    return ImageSet(
        train_x=pixels[:count],
        train_y=labels[:count],
        test_x=pixels[count:],
        test_y=labels[count:],
        num_classes=3,
        fingerprint="f",
    )


def config_of(method, **training):
    study = load_study("demo")
    cell = next(cell for cell in study.cells if cell.method == method)
    config = study.train_slice(cell, load_machine())
    recipe = {"batch_size": 8, "epochs": 3, "lr_drop_every": 1, **training}
    return {**config, "training": {**config["training"], **recipe}}


def epoch_of(config, data, epoch=0):
    return list(batches(make_source(config, data), epoch, 0, CPU))


def run(trainer):
    trainer.run(lambda: None, lambda row: None)
    return trainer.model.state_dict()


@pytest.mark.parametrize("method", ["vanilla", "ov", "fdt", "tn", "tn_fdt"])
def test_the_trainer_is_the_plain_recipe(method):
    """SGD with momentum and weight decay, the learning rate cut after each epoch, no more."""
    config, data = config_of(method), tiny_set()
    got = run(Trainer(config, data, CPU))
    model = build_model(config, 3).to(memory_format=torch.channels_last)
    model.train()
    velocity = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
    for epoch, lr in enumerate([0.1, 0.1 * 0.1, 0.1 * 0.1**2]):
        model.train()
        for images, classes, table, _ in epoch_of(config, data, epoch):
            logits = model(images.contiguous(memory_format=torch.channels_last))
            by_class = table is None
            loss = (
                multi_class_log_loss(logits, classes)
                if by_class
                else multi_label_log_loss(logits, table[1])
            )
            model.zero_grad()
            loss.backward()
            with torch.no_grad():
                for name, parameter in model.named_parameters():
                    velocity[name].mul_(0.9).add_(parameter.grad + 0.0005 * parameter)
                    parameter -= lr * velocity[name]
    for name, value in model.state_dict().items():
        torch.testing.assert_close(got[name], value, rtol=1e-4, atol=1e-5)


def resumed_after(cut, config, data):
    """A trainer in the state of another that was stopped after `cut` steps."""
    first, steps = Trainer(config, data, CPU), iter(range(1, cut + 1))

    def stop():
        if next(steps) == cut:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        first.run(stop, lambda row: None)
    second = Trainer(config, data, CPU)
    second.restore(first.state())
    return second


@pytest.mark.parametrize("method", ["vanilla", "tn_fdt"])
@pytest.mark.parametrize("cut", [1, 4, 7])
def test_a_training_cut_in_two_ends_with_the_same_bytes(method, cut):
    config, data = config_of(method), tiny_set()
    whole = run(Trainer(config, data, CPU))
    second = resumed_after(cut, config, data)
    resumed = run(second)
    assert all(torch.equal(resumed[name], whole[name]) for name in whole)
    assert len(second.history) == 3


@pytest.mark.parametrize("cut", [1, 5, 9])
def test_the_best_epoch_is_the_first_of_the_largest_accuracy_also_when_cut_in_two(cut):
    config, data = config_of("vanilla", epochs=4, lr=0.05) | {"keep_best": True}, tiny_set()
    first, weights = Trainer(config, data, CPU), []

    def keep(row):
        weights.append({key: item.clone() for key, item in first.model.state_dict().items()})

    first.run(lambda: None, keep)
    tested = [row["test_accuracy"] for row in first.history]
    assert len(set(tested)) > 1
    expected = weights[tested.index(max(tested))]
    assert all(torch.equal(first.best[name], expected[name]) for name in expected)
    second = resumed_after(cut, config, data)
    last = run(second)
    assert all(torch.equal(last[name], weights[-1][name]) for name in last)
    second.take_best()
    found = second.model.state_dict()
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert accuracy(second.model, data.test_x, data.test_y) == max(tested)


def test_the_papers_schedule():
    config, data = config_of("vanilla", epochs=150, lr_drop_every=30), tiny_set()
    trainer, rates = Trainer(config, data, CPU), {}
    for trainer.epoch in range(150):
        rates.setdefault(round(trainer.lr, 10), []).append(trainer.epoch)
    assert [(rate, len(epochs)) for rate, epochs in rates.items()] == [
        (0.1, 30),
        (0.01, 30),
        (0.001, 30),
        (0.0001, 30),
        (0.00001, 30),
    ]


def test_every_image_is_seen_once_an_epoch_also_in_a_short_last_batch():
    data = tiny_set()
    config = {**config_of("vanilla"), "augment": {"shift": 0, "flip": False}}
    epoch = epoch_of(config, data)
    assert [len(batch.classes) for batch in epoch] == [8, 8, 8, 6]
    seen = torch.cat([batch.images for batch in epoch]).sum((1, 2, 3)).sort().values
    expected = (data.train_x.float() / 255).sum((1, 2, 3)).sort().values
    torch.testing.assert_close(seen, expected)


def test_blends_have_as_many_steps_as_single_images():
    sizes = [len(batch.classes) for batch in epoch_of(config_of("fdt"), tiny_set())]
    assert sizes == [8, 8, 8, 6]


@pytest.mark.parametrize("method", ["vanilla", "tn", "ov", "fdt"])
@pytest.mark.parametrize(
    ("model", "stem", "side", "count"),
    [("resnet18", "imagenet", 8, 17), ("wrn10_1", "cifar", 4, 17)],
)
def test_a_rest_of_one_image_joins_the_batch_before_it(method, model, stem, side, count):
    """Batch normalization cannot learn from one image whose feature maps are 1×1."""
    config, data = config_of(method, epochs=1), tiny_set(count, side=side)
    config = {**config, "model": model, "stem": stem, "augment": {"shift": 1, "flip": True}}
    assert [len(batch.classes) for batch in epoch_of(config, data)] == [8, 9]
    trainer, seen = Trainer(config, data, CPU), []
    trainer.run(lambda: seen.append(trainer.seen), lambda row: None)
    assert seen == [8, 17]
    assert trainer.history[0]["loss"] > 0


def test_a_batch_size_that_a_network_cannot_learn_from_is_one_line():
    config = {**config_of("vanilla", batch_size=1), "model": "resnet18", "stem": "imagenet"}
    with pytest.raises(UserError, match=r"resnet18: Expected more than 1 value.*batch_size"):
        run(Trainer(config, tiny_set(), CPU))


@pytest.mark.parametrize("model", ["vit_tiny_patch16_224", "inception_v3"])
def test_a_network_for_images_of_another_size_is_one_line(model):
    config = {**config_of("vanilla"), "model": model, "stem": "imagenet"}
    with pytest.raises(UserError, match=rf"{model}: .*does not take images of 8x8"):
        run(Trainer(config, tiny_set(), CPU))


def test_the_memory_of_the_last_gradients_is_free_in_the_forward_pass():
    trainer, free = Trainer(config_of("vanilla", epochs=1), tiny_set(), CPU), []
    weights = list(trainer.model.parameters())
    trainer.model.register_forward_pre_hook(
        lambda model, _: free.append(model.training <= all(w.grad is None for w in weights))
    )
    run(trainer)
    assert all(free)


def test_a_loss_that_is_not_finite_names_epoch_step_and_learning_rate():
    trainer = Trainer(config_of("vanilla"), tiny_set(), CPU)
    with torch.no_grad():
        next(trainer.model.parameters()).fill_(float("nan"))
    with pytest.raises(UserError, match=r"diverged.*epoch 1, step 1 of 4, learning rate 0.1"):
        run(trainer)


@pytest.mark.parametrize("save", [False, True])
def test_the_first_bad_step_is_named_also_when_it_is_found_later(save):
    """Looked for at the end of an epoch and before a checkpoint, not in the step."""
    trainer = Trainer(config_of("vanilla"), tiny_set(), CPU)

    def after_step():
        if trainer.step == 2:
            with torch.no_grad():
                next(trainer.model.parameters()).fill_(float("nan"))
        if save and trainer.step == 4:
            trainer.state()

    with pytest.raises(UserError, match=r"the loss is NaN.*epoch 1, step 3 of 4"):
        trainer.run(after_step, lambda row: None)


def test_weights_that_are_not_finite_are_neither_saved_nor_a_result():
    trainer = Trainer(config_of("vanilla"), tiny_set(), CPU)
    with torch.no_grad():
        next(trainer.model.parameters())[0, 0, 0, 0] = float("inf")
    with pytest.raises(UserError, match="a weight is NaN or infinite in epoch 1"):
        trainer.state()


def test_accuracy_counts_right_answers():
    class Always(torch.nn.Module):
        def forward(self, x):
            return torch.eye(3)[torch.ones(len(x), dtype=torch.long)]

    data = tiny_set()
    assert accuracy(Always(), data.test_x, data.test_y) == pytest.approx(1 / 3)


def test_bf16_computes_coarsely_and_keeps_fp32_weights():
    config, data = config_of("tn_fdt", epochs=1), tiny_set()
    exact = run(Trainer(config, data, CPU))
    coarse = run(Trainer({**config, "precision": "bf16"}, data, CPU))
    for name, value in exact.items():
        assert coarse[name].dtype == value.dtype
    first = next(name for name in exact if name.endswith("conv.weight"))
    gap = (coarse[first] - exact[first]).abs().max() / exact[first].abs().max()
    assert 1e-6 < gap < 0.2


def test_compiled_kernels_are_not_chosen_by_measuring_them(monkeypatch):
    from torch._inductor import config as inductor

    monkeypatch.setattr(inductor, "deterministic", False)
    monkeypatch.setattr(torch, "compile", lambda model: model)
    Trainer({**config_of("vanilla"), "compile": True}, tiny_set(), CPU)
    assert inductor.deterministic
