"""Shifts and flips against a reference that goes image by image and pixel by pixel."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tnfdt.core.augment import ShiftFlip
from tnfdt.core.full_distribution import FullDistribution, ShiftingAugment


def reference(images, augment, generator):
    """Every image mirrored or not, then shifted: pixel (y, x) comes from (y - dy, x - dx)."""
    rows, columns, flipped = augment.draw(len(images), generator)
    result = torch.zeros_like(images)
    height, width = images.shape[2:]
    for m, image in enumerate(images):
        source = image.flip(-1) if flipped[m] else image
        dy, dx = augment.shift - int(rows[m]), augment.shift - int(columns[m])
        for y in range(height):
            for x in range(width):
                if 0 <= y - dy < height and 0 <= x - dx < width:
                    result[m, :, y, x] = source[:, y - dy, x - dx]
    return result


def random_images(*shape, dtype=torch.uint8, seed=0):
    values = torch.randint(1, 256, shape, generator=torch.Generator().manual_seed(seed))
    return values.to(dtype)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


@settings(deadline=None, max_examples=40)
@given(
    count=st.integers(1, 5),
    channels=st.sampled_from([1, 3]),
    height=st.integers(4, 7),
    width=st.integers(4, 7),
    shift=st.integers(0, 3),
    flip=st.booleans(),
    dtype=st.sampled_from([torch.uint8, torch.float32, torch.float16, torch.int64]),
    seed=st.integers(0, 1000),
)
def test_equals_the_reference(count, channels, height, width, shift, flip, dtype, seed):
    images = random_images(count, channels, height, width, dtype=dtype, seed=seed)
    before = images.clone()
    augment = ShiftFlip(shift, flip)
    result = augment(images, seeded(seed))
    assert torch.equal(result, reference(images, augment, seeded(seed)))
    assert result.dtype == dtype
    assert torch.equal(images, before)


def test_a_cifar_batch_equals_the_reference():
    images, augment = random_images(20, 3, 32, 32), ShiftFlip(4, True)
    assert torch.equal(augment(images, seeded()), reference(images, augment, seeded()))


@pytest.mark.parametrize("layout", ["channels_last", "transposed", "strided"])
def test_any_memory_layout(layout):
    images = random_images(4, 3, 8, 8)
    odd = {
        "channels_last": images.contiguous(memory_format=torch.channels_last),
        "transposed": images.transpose(2, 3).contiguous().transpose(2, 3),
        "strided": images.repeat_interleave(2, 0)[::2],
    }[layout]
    assert torch.equal(ShiftFlip(2, True)(odd, seeded()), ShiftFlip(2, True)(images, seeded()))


def test_draws_are_uniform_over_shifts_and_flips():
    rows, columns, flipped = ShiftFlip(4, True).draw(81_000, seeded())
    pairs = torch.bincount(rows * 9 + columns, minlength=81)
    assert pairs.min() > 850
    assert pairs.max() < 1150
    assert abs(flipped.float().mean() - 0.5) < 0.01
    # Mirrored or not is drawn apart from the shift.
    assert abs(torch.corrcoef(torch.stack([columns.float(), flipped.float()]))[0, 1]) < 0.02


def test_same_generator_state_same_images_other_state_other_images():
    images, augment = random_images(50, 3, 8, 8), ShiftFlip(2, True)
    assert torch.equal(augment(images, seeded(1)), augment(images, seeded(1)))
    assert not torch.equal(augment(images, seeded(1)), augment(images, seeded(2)))


def test_nothing_to_do_returns_the_images():
    images = random_images(2, 3, 4, 4)
    assert torch.equal(ShiftFlip(0, False)(images, seeded()), images)
    assert ShiftFlip(4, True)(images[:0], seeded()).shape == (0, 3, 4, 4)


def test_without_flip_no_image_is_mirrored():
    ramp = torch.arange(1, 9, dtype=torch.uint8).expand(64, 1, 8, 8)
    shifted = ShiftFlip(2, False)(ramp, seeded())
    middle = shifted[:, 0, 4, 2:6].int()
    assert (middle.diff() == 1).all()


@pytest.mark.parametrize(("shift", "size"), [(8, 8), (9, 8)])
def test_a_shift_that_empties_the_image_is_refused(shift, size):
    with pytest.raises(ValueError, match=rf"augment.shift is {shift}.*{size}x{size}"):
        ShiftFlip(shift, True)(random_images(1, 3, size, size), seeded())


def test_a_negative_shift_is_refused():
    with pytest.raises(ValueError, match=r"augment.shift is -1"):
        ShiftFlip(-1, False)


@pytest.mark.parametrize(("shift", "flip"), [(2, True), (2, False), (0, True), (0, False)])
def test_full_distribution_may_use_the_draws_instead_of_the_call(shift, flip):
    images, labels = random_images(30, 3, 8, 8), torch.arange(30) % 5
    augment = ShiftFlip(shift, flip)
    assert isinstance(augment, ShiftingAugment)
    blends = [
        FullDistribution(images, labels, 5, augment=one, generator=seeded(3)).batch(20).images
        for one in (augment, lambda images, generator: augment(images, generator))
    ]
    torch.testing.assert_close(*blends)


@pytest.mark.parametrize(("shift", "flip"), [(2, True), (2, False), (0, True), (0, False)])
def test_a_call_consumes_the_generator_as_draw_does(shift, flip):
    called, drawn = seeded(), seeded()
    ShiftFlip(shift, flip)(random_images(7, 3, 8, 8), called)
    ShiftFlip(shift, flip).draw(7, drawn)
    assert torch.equal(called.get_state(), drawn.get_state())
