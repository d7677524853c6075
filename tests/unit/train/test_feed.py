"""The feed: every image once, the same batches from the same seed, also from the middle."""

import pytest
import torch

from tnfdt.core.augment import ShiftFlip
from tnfdt.core.seeding import generator
from tnfdt.train.feed import epoch_batches, steps_per_epoch

IMAGES = torch.arange(23, dtype=torch.uint8).view(23, 1, 1, 1).expand(23, 3, 8, 8).contiguous()
LABELS = torch.arange(23) % 10


def batches(images=IMAGES, labels=LABELS, **options):
    options = {"batch_size": 5, "seed": 0, "epoch": 0, "augment": None} | options
    return list(epoch_batches(images, labels, **options))


def equal(ones, others):
    return len(ones) == len(others) and all(
        torch.equal(one[0], other[0]) and torch.equal(one[1], other[1])
        for one, other in zip(ones, others, strict=True)
    )


def test_every_image_once_with_its_label():
    images, labels = map(torch.cat, zip(*batches(), strict=True))
    values = images[:, 0, 0, 0].long()
    assert sorted(values.tolist()) == list(range(23))
    assert values.tolist() != list(range(23))
    assert torch.equal(labels, LABELS[values])
    assert [len(batch) for batch, _ in batches()] == [5, 5, 5, 5, 3]


@pytest.mark.parametrize(("count", "size", "steps"), [(23, 5, 5), (25, 5, 5), (1, 5, 1)])
def test_steps_per_epoch(count, size, steps):
    assert steps_per_epoch(count, size) == steps


def test_seed_and_epoch_decide_order_and_augmentation():
    shifted = {"augment": ShiftFlip(2, True)}
    assert equal(batches(**shifted), batches(**shifted))
    assert not equal(batches(**shifted), batches(**shifted, seed=1))
    assert not equal(batches(**shifted), batches(**shifted, epoch=1))


def test_streams_are_the_documented_ones():
    order = torch.randperm(23, generator=generator(3, "order/7"))[5:10]
    expected = ShiftFlip(2, True)(IMAGES[order], generator(3, "augment/7/1"))
    found = batches(seed=3, epoch=7, augment=ShiftFlip(2, True))[1]
    assert torch.equal(found[0], expected)
    assert torch.equal(found[1], LABELS[order])


@pytest.mark.parametrize("start", [0, 1, 4, 5])
def test_start_in_the_middle_gives_the_same_batches(start):
    whole = batches(augment=ShiftFlip(2, True))
    assert equal(batches(augment=ShiftFlip(2, True), start=start), whole[start:])


def test_skipped_batches_are_not_computed():
    calls = []
    batches(augment=lambda images, chance: calls.append(1) or images, start=3)
    assert len(calls) == 2


def test_the_set_itself_stays_unchanged():
    before = IMAGES.clone()
    for images, _ in epoch_batches(IMAGES, LABELS, batch_size=5, seed=0, epoch=0):
        images.zero_()
    assert torch.equal(IMAGES, before)
