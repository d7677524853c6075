"""Sources: every image once, the same batches from the same seed, in any order of asking."""

import pytest
import torch

from tnfdt.core.augment import ShiftFlip
from tnfdt.core.full_distribution import FullDistribution, sampled_classes
from tnfdt.core.seeding import derive, generator
from tnfdt.data.prepared import ImageSet
from tnfdt.train.batch_sources import Blends, SingleImages

SHADES = torch.arange(23, dtype=torch.uint8).view(23, 1, 1, 1).expand(23, 3, 8, 8).contiguous()
LABELS = torch.arange(23) % 10
BLEND = {"series": "harmonic", "amount": "uniform", "augment": "each", "target": "distribution"}


def data_of(images=SHADES):
    halves = {"test_x": images[:0], "test_y": LABELS[:0], "fingerprint": "f"}
    return ImageSet(train_x=images, train_y=LABELS, num_classes=10, **halves)


def single(images=SHADES, **options):
    options = {"batch_size": 5, "seed": 0, "augment": None} | options
    return SingleImages(data_of(images), **options)


def blends(images=SHADES, **options):
    options = {"batch_size": 5, "seed": 0, "augment": ShiftFlip(2, True)} | options
    return Blends(data_of(images), BLEND | options.pop("blend", {}), **options)


def epoch_of(source, epoch=0):
    return [source.batch(source.draw(epoch, step)) for step in range(source.steps)]


def equal(ones, others):
    return all(
        torch.equal(one.images, other.images) and torch.equal(one.classes, other.classes)
        for one, other in zip(ones, others, strict=True)
    )


def test_every_image_once_with_its_label():
    epoch = epoch_of(single())
    values = (torch.cat([batch.images for batch in epoch])[:, 0, 0, 0] * 255).round().long()
    assert sorted(values.tolist()) == list(range(23))
    assert values.tolist() != list(range(23))
    assert torch.equal(torch.cat([batch.classes for batch in epoch]), LABELS[values])
    assert [len(batch.classes) for batch in epoch] == [5, 5, 5, 5, 3]


@pytest.mark.parametrize("make", [single, blends])
def test_seed_epoch_and_step_alone_decide(make):
    shifted = {"augment": ShiftFlip(2, True)}
    source = make(**shifted)
    assert equal(epoch_of(source), epoch_of(make(**shifted)))
    assert not equal(epoch_of(source), epoch_of(make(**shifted, seed=1)))
    assert not equal(epoch_of(source), epoch_of(source, 1))
    third = [source.batch(source.draw(0, 3))]  # asked for alone, and after another epoch
    assert equal(third, epoch_of(make(**shifted))[3:4])


def test_streams_of_single_images_are_the_documented_ones():
    order = torch.randperm(23, generator=generator(3, "order/7"))[5:10]
    images = torch.randint(256, SHADES.shape, dtype=torch.uint8)
    expected = ShiftFlip(2, True)(images[order], generator(3, "augment/7/1"))
    found = epoch_of(single(images, seed=3, augment=ShiftFlip(2, True)), 7)[1]
    assert torch.equal(found.images, expected.float() / 255)
    assert torch.equal(found.classes, LABELS[order])


@pytest.mark.parametrize("when", ["each", "after"])
def test_streams_of_blends_are_the_documented_ones(when):
    images = torch.randint(256, SHADES.shape, dtype=torch.uint8)
    chance = torch.Generator().manual_seed(derive(3, "blend/7/1"))
    options = {"augment": ShiftFlip(2, True), "augment_when": when, "generator": chance}
    expected = FullDistribution(images, LABELS, 10, **options).batch(5)
    found = epoch_of(blends(images, seed=3, blend={"augment": when}), 7)[1]
    assert torch.equal(found.images, expected.images / 255)
    assert torch.equal(found.classes, expected.dominant)
    assert torch.equal(found.table[1], expected.targets)


def test_ov_sees_the_blends_of_fdt_and_one_class_of_each():
    fdt, ov = epoch_of(blends()), epoch_of(blends(blend={"target": "dominant"}))
    assert equal(fdt, ov)
    assert all(batch.table is None for batch in ov)


def naive_class(factors, uniform):
    """Go along the classes until the uniform number is used up."""
    for number, factor in enumerate(factors):
        if uniform < factor:
            return number
        uniform -= factor
    raise AssertionError("the factors do not sum to 1")


def test_a_sampled_target_is_drawn_with_the_factors_as_probabilities():
    images = torch.randint(256, SHADES.shape, dtype=torch.uint8)
    chance = torch.Generator().manual_seed(derive(3, "blend/7/1"))
    drawn = FullDistribution(images, LABELS, 10, generator=chance).draw(5)
    uniforms = torch.rand(5, 1, dtype=torch.float64, generator=generator(3, "ov/7/1"))
    expected = [
        naive_class(factors, uniform)
        for factors, (uniform,) in zip(drawn.targets.tolist(), uniforms.tolist(), strict=True)
    ]
    sampled = blends(images, seed=3, augment=None, blend={"target": "sampled"})
    found = epoch_of(sampled, 7)[1]
    assert found.classes.tolist() == expected
    assert found.table is None
    assert torch.equal(found.images, epoch_of(blends(images, seed=3, augment=None), 7)[1].images)


def test_sampled_classes_come_as_often_as_their_factors_say():
    factors = torch.tensor([0.0, 0.5, 0.0, 0.3, 0.2, 0.0])
    found = sampled_classes(factors.expand(20_000, 6), generator(0, "test"))
    shares = found.bincount(minlength=6) / 20_000
    assert torch.allclose(shares, factors, atol=0.015)  # four standard errors
    assert (shares[factors == 0] == 0).all()


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("make", [single, blends])
def test_images_come_in_the_layout_asked_for(make, layout):
    batch = epoch_of(make(layout=layout))[0]
    assert batch.images.is_contiguous(memory_format=layout)


@pytest.mark.parametrize("make", [single, blends])
def test_the_set_itself_stays_unchanged(make):
    images = SHADES.clone()
    for batch in epoch_of(make(images)):
        batch.images.zero_()
    assert torch.equal(images, SHADES)
