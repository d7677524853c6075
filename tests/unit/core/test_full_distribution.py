"""Full distribution training against Alg. 2 written down loop for loop."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from itertools import permutations
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Generator, Tensor

from tnfdt.core import mixers
from tnfdt.core.augment import ShiftFlip
from tnfdt.core.full_distribution import SERIES, Blend, FullDistribution, harmonic_factors

COUNTS = (1, 3, 9, 27)  # images per class: as unbalanced as it gets


def make_set(counts: tuple[int, ...], size: tuple[int, ...] = (3, 6, 5)) -> tuple[Tensor, Tensor]:
    """Random images, and labels in random order."""
    generator = Generator().manual_seed(0)
    labels = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    labels = labels[torch.randperm(len(labels), generator=generator)]
    shape = (len(labels), *size)
    return torch.randint(256, shape, dtype=torch.uint8, generator=generator), labels


IMAGES, LABELS = make_set(COUNTS)


def seeded(seed: int = 0, **options: Any) -> FullDistribution:
    generator = Generator().manual_seed(seed)
    return FullDistribution(IMAGES, LABELS, len(COUNTS), generator=generator, **options)


def naive_sample(
    labels: list[int], num_classes: int, amount: int, rng: random.Random
) -> tuple[list[int], list[float], list[float]]:
    """Alg. 2 for one sample: the images j, their factors F, and the ground truth GT."""
    factors, total = [], 0.0
    for i in range(1, amount + 1):
        factors.append(1 / i)
        total = total + factors[-1]
    factors = [factor / total for factor in factors]
    truth, chosen = [0.0] * num_classes, []
    for factor in factors:
        j = rng.randrange(len(labels))
        while truth[labels[j]] > 0:
            j = rng.randrange(len(labels))
        truth[labels[j]] += factor
        chosen.append(j)
    return chosen, factors, truth


def naive_shift_flip(image: Tensor, row: int, column: int, mirrored: bool, shift: int) -> Tensor:
    """Mirror, then cut the window at (row, column) out of the zero-padded image, per pixel."""
    height, width = image.shape[1:]
    out = torch.zeros_like(image)
    for y in range(height):
        for x in range(width):
            from_y, from_x = y + row - shift, x + column - shift
            if 0 <= from_y < height and 0 <= from_x < width:
                out[:, y, x] = image[:, from_y, width - 1 - from_x if mirrored else from_x]
    return out


def naive_blend(blend: Blend, images: Callable[[int, int], Tensor]) -> Tensor:
    """Eq. 3 in float64, image by image; images(m, j) is the m-th image used, number j."""
    out, m = torch.zeros(blend.images.shape, dtype=torch.float64), 0
    for b in range(len(out)):
        for i in range(blend.indices.shape[1]):
            if blend.weights[b, i] > 0:
                image = images(m, int(blend.indices[b, i]))
                out[b] += image.double() * blend.weights[b, i].double()
                m += 1
    return out


def assert_same_images(images: Tensor, expected: Tensor) -> None:
    """Equal to a millionth of full scale: float32 sums of up to a hundred images."""
    torch.testing.assert_close(images.double(), expected.double(), rtol=0, atol=255e-6)


def test_harmonic_factors_by_hand() -> None:
    expected = torch.tensor([6, 3, 2], dtype=torch.float64) / 11
    torch.testing.assert_close(harmonic_factors(3), expected)
    assert harmonic_factors(1).tolist() == [1.0]
    assert harmonic_factors(100).sum().item() == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("series", SERIES)
@pytest.mark.parametrize("amount", ["uniform", "all"])
@pytest.mark.parametrize("counts", [COUNTS, (2,) * 100, (5,)])
def test_every_blend_is_one(series: str, amount: Any, counts: tuple[int, ...]) -> None:
    images, labels = make_set(counts)
    num_classes = len(counts)
    source = FullDistribution(
        images, labels, num_classes, series=series, amount=amount, generator=Generator()
    )
    blend = source.batch(40)
    assert blend.images.shape == (40, *images.shape[1:])
    assert blend.images.dtype == blend.targets.dtype == blend.weights.dtype == torch.float32
    ones = torch.ones(40)
    torch.testing.assert_close(blend.weights.sum(1), ones)
    torch.testing.assert_close(blend.targets.sum(1), ones)
    classes = labels[blend.indices]
    assert torch.equal(classes.sort(1).values, torch.arange(num_classes).expand(40, -1))
    assert torch.equal(blend.targets.gather(1, classes), blend.weights)
    first_largest = blend.weights.argmax(1, keepdim=True)
    assert torch.equal(blend.dominant, classes.gather(1, first_largest)[:, 0])
    used = (blend.weights > 0).sum(1)
    assert torch.equal(blend.weights > 0, torch.arange(num_classes) < used[:, None])
    assert used.min() >= 1
    assert (used == num_classes).all() or amount == "uniform"
    assert_same_images(blend.images, naive_blend(blend, lambda m, j: images[j]))


def test_weights_are_the_series() -> None:
    expected = {
        "harmonic": harmonic_factors(4),
        "geometric": torch.tensor([8.0, 4.0, 2.0, 1.0]) / 15,
        "uniform": torch.ones(4) / 4,
    }
    for series, factors in expected.items():
        weights = seeded(series=series, amount="all").batch(3).weights
        torch.testing.assert_close(weights, factors.float().expand(3, 4))
    drawn = seeded(series="random", amount="all").batch(3).weights
    assert len(drawn.unique()) == drawn.numel()


def test_weights_of_each_amount_are_harmonic() -> None:
    weights = seeded().batch(50).weights
    for row in weights:
        n = int((row > 0).sum())
        torch.testing.assert_close(row[:n], harmonic_factors(n).float())


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_order_of_classes_is_exactly_that_of_alg_2(seed: int) -> None:
    """All 24 orders of four classes, of which one has a single image and one has 27."""
    size = 20_000
    blend = seeded(seed, amount="all").batch(size)
    orders = Counter(map(tuple, LABELS[blend.indices].tolist()))
    expected = []
    for order in permutations(range(4)):
        probability, rest = 1.0, sum(COUNTS)
        for drawn in order:
            probability *= COUNTS[drawn] / rest
            rest -= COUNTS[drawn]
        expected.append(size * probability)
    observed = [orders[order] for order in permutations(range(4))]
    # Orders too rare for the chi-squared approximation are counted together.
    rare = np.array(expected) < 10
    groups = [
        (np.append(values[~rare], values[rare].sum()))
        for values in (np.array(observed, float), np.array(expected))
    ]
    assert stats.chisquare(*groups).pvalue > 0.001


def test_same_frequencies_as_the_naive_sampler() -> None:
    """First two classes and the amount, the fast sampler beside the loop."""
    rng, labels, size = random.Random(1), LABELS.tolist(), 6_000
    naive: Counter[tuple[int, ...]] = Counter()
    for _ in range(size):
        chosen, _, _ = naive_sample(labels, 4, rng.randint(1, 4), rng)
        naive[(len(chosen), *(labels[j] for j in chosen[:2]))] += 1
    blend = seeded(1).batch(size)
    fast: Counter[tuple[int, ...]] = Counter()
    for amount, order in zip((blend.weights > 0).sum(1), LABELS[blend.indices], strict=True):
        fast[(int(amount), *order[: min(int(amount), 2)].tolist())] += 1
    keys = [key for key in naive | fast if naive[key] + fast[key] >= 20]
    table = [[counter[key] for key in keys] for counter in (naive, fast)]
    assert len(keys) > 20
    assert stats.chi2_contingency(table).pvalue > 0.001


def test_amounts_are_uniform() -> None:
    amounts = (seeded().batch(8_000).weights > 0).sum(1)
    assert stats.chisquare(torch.bincount(amounts)[1:].numpy()).pvalue > 0.001


def test_images_of_a_class_are_uniform() -> None:
    blend = seeded(amount="all").batch(8_000)
    counts = torch.bincount(blend.indices.flatten(), minlength=len(LABELS))
    for label, images in enumerate(COUNTS):
        of_class = counts[LABELS.eq(label)]
        assert of_class.sum() == 8_000
        if images > 1:
            assert stats.chisquare(of_class.numpy()).pvalue > 0.001


class Recorder(ShiftFlip):
    """A ShiftFlip that keeps what it draws."""

    def draw(self, count: int, generator: Generator | None) -> tuple[Tensor, Tensor, Tensor]:
        drawn = super().draw(count, generator)
        object.__setattr__(self, "drawn", drawn)
        return drawn


SHIFTS = [(0, True), (1, False), (2, True), (4, True)]


@pytest.mark.parametrize(("shift", "flip"), SHIFTS)
def test_each_image_is_shifted_and_flipped_by_itself(shift: int, flip: bool) -> None:
    augment = Recorder(shift, flip)
    blend = seeded(augment=augment, augment_when="each").batch(30)
    rows, columns, mirrored = (drawn.tolist() for drawn in augment.drawn)  # type: ignore[attr-defined]
    assert len(rows) == (blend.weights > 0).sum()
    assert len(set(columns)) > 1 or not shift

    def augmented(m: int, j: int) -> Tensor:
        return naive_shift_flip(IMAGES[j], rows[m], columns[m], mirrored[m], shift)

    assert_same_images(blend.images, naive_blend(blend, augmented))


@pytest.mark.parametrize("when", ["each", "after"])
@pytest.mark.parametrize(("shift", "flip"), SHIFTS)
def test_fast_path_equals_plain_path(
    monkeypatch: pytest.MonkeyPatch, when: Any, shift: int, flip: bool
) -> None:
    """The plain path calls the augment, a GPU's gathers; all must draw and compute the same."""
    augment = ShiftFlip(shift, flip)
    fast = seeded(augment=augment, augment_when=when).batch(25)
    plain = seeded(augment=lambda x, chance: augment(x, chance), augment_when=when).batch(25)
    monkeypatch.setattr(mixers, "_BYTE_BAG", "absent")
    gathered = seeded(augment=augment, augment_when=when).batch(25)
    for other in (plain, gathered):
        assert all(torch.equal(a, b) for a, b in zip(fast[1:], other[1:], strict=True))
        assert_same_images(fast.images, other.images)


@pytest.mark.parametrize("when", ["each", "after"])
def test_images_can_be_viewed_as_rows(when: Any) -> None:
    """Whatever layout is fastest inside, users get plain contiguous images."""
    assert seeded(augment=ShiftFlip(1, True), augment_when=when).batch(3).images.is_contiguous()


def test_a_batch_is_its_draw_mixed_later() -> None:
    """The halves of `batch`: the generator decides in the first one alone."""
    source, other = (seeded(augment=ShiftFlip(2, True)) for _ in range(2))
    drawn = source.draw(7)
    source.draw(7)  # as a thread that runs ahead would
    batch = other.batch(7)
    assert torch.equal(source.mix(drawn.images), batch.images)
    assert all(torch.equal(a, b) for a, b in zip(drawn[1:], batch[1:], strict=True))


def test_after_augments_the_blend() -> None:
    blend = seeded(augment=lambda images, generator: images + 1000, augment_when="after").batch(5)
    assert_same_images(blend.images - 1000, naive_blend(blend, lambda m, j: IMAGES[j]))


def test_each_takes_any_callable() -> None:
    blend = seeded(augment=lambda images, generator: 255 - images).batch(5)
    assert_same_images(blend.images, naive_blend(blend, lambda m, j: 255 - IMAGES[j]))


def test_augment_gets_bytes_and_the_generator() -> None:
    seen: list[tuple[torch.dtype, Generator | None]] = []

    def spy(images: Tensor, generator: Generator | None) -> Tensor:
        seen.append((images.dtype, generator))
        return images

    source = seeded(augment=spy)
    source.batch(2)
    assert seen == [(torch.uint8, source.generator)]


@pytest.mark.parametrize("when", ["each", "after"])
def test_the_generator_decides_the_batch(when: Any) -> None:
    source = seeded(3, augment=ShiftFlip(2, True), augment_when=when)
    first, second = source.batch(7), source.batch(7)
    assert source.generator is not None
    source.generator.manual_seed(3)
    again = source.batch(7)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first.images, second.images)


def test_without_generator_torch_is_the_source_of_chance() -> None:
    source = FullDistribution(IMAGES, LABELS, 4, augment=ShiftFlip(1, True))
    batches = []
    for _ in range(2):
        torch.manual_seed(5)
        batches.append(source.batch(6))
    assert torch.equal(batches[0].images, batches[1].images)


def test_amount_changes_nothing_but_the_amount() -> None:
    some, every = seeded(amount="uniform").batch(9), seeded(amount="all").batch(9)
    assert torch.equal(some.indices, every.indices)


def test_the_set_stays_as_it_was() -> None:
    before = IMAGES.clone()
    seeded(augment=ShiftFlip(2, True)).batch(20)
    assert torch.equal(IMAGES, before)


def test_labels_may_be_of_any_integer_type() -> None:
    for dtype in (torch.uint8, torch.int32):
        source = FullDistribution(IMAGES, LABELS.to(dtype), 4, generator=Generator())
        reference = FullDistribution(IMAGES, LABELS, 4, generator=Generator())
        assert torch.equal(source.batch(5).indices, reference.batch(5).indices)


def build(**changes: Any) -> FullDistribution:
    arguments: dict[str, Any] = {"images": IMAGES, "labels": LABELS, "num_classes": 4}
    return FullDistribution(**(arguments | changes))


BAD: list[tuple[Callable[[], object], str]] = [
    (lambda: harmonic_factors(0), "n: "),
    (lambda: build(images=IMAGES.float()), r"images: expected torch.uint8 .*torch.float32"),
    (lambda: build(images=IMAGES[0]), r"images: expected .*\[3, 6, 5\]"),
    (lambda: build(images=IMAGES[:0], labels=LABELS[:0]), "images: expected"),
    (lambda: build(labels=LABELS[1:]), r"labels: expected integers \[40\].*\[39\]"),
    (lambda: build(labels=LABELS.float()), "labels: expected integers"),
    (lambda: build(labels=LABELS - 1), r"labels: expected 0\.\.3, found -1\.\.2"),
    (lambda: build(num_classes=3), r"labels: expected 0\.\.2, found 0\.\.3"),
    (lambda: build(num_classes=6), r"labels: no image of class \[4, 5\]"),
    (lambda: build(num_classes=0), "num_classes: "),
    (lambda: build(series="fibonacci"), "series: expected one of harmonic, .*'fibonacci'"),
    (lambda: build(amount="some"), "amount: expected uniform, all or a number"),
    (lambda: build(augment_when="before"), "augment_when: expected one of each, after"),
    (lambda: build().batch(0), "size: "),
]


@pytest.mark.parametrize(("call", "message"), BAD)
def test_bad_input_is_named(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
