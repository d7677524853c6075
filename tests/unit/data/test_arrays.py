"""Stratified parts, class checks and fingerprints."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tnfdt.data.arrays import (
    Arrays,
    channels_first,
    count_classes,
    describe,
    fingerprint,
    limited,
    stratified,
)
from tnfdt.study.schema import UserError


def labelled(train_y, test_y=(0,)):
    train_y, test_y = np.array(train_y, np.int64), np.array(test_y, np.int64)
    images = [np.zeros((len(y), 3, 2, 2), np.uint8) for y in (train_y, test_y)]
    return Arrays(images[0], train_y, images[1], test_y)


def numbered(count=200, classes=10):
    """Every image carries its own position."""
    images = np.arange(count, dtype=np.uint8)[:, None, None, None] + np.zeros(
        (1, 3, 2, 2), np.uint8
    )
    labels = np.arange(count) % classes
    return Arrays(images, labels, images, labels)


@settings(deadline=None, max_examples=60)
@given(
    sizes=st.lists(st.integers(1, 60), min_size=1, max_size=8),
    share=st.floats(0.01, 1.0),
    stream=st.sampled_from(["limit/train", "limit/test"]),
)
def test_every_class_keeps_its_share(sizes, share, stream):
    labels = np.repeat(np.arange(len(sizes)), sizes)
    count = max(1, int(share * len(labels)))
    chosen = stratified(labels, count, stream)
    assert len(set(chosen.tolist())) == count
    assert (np.diff(chosen) > 0).all()
    counts = np.bincount(labels[chosen], minlength=len(sizes))
    quota = count * np.array(sizes) / len(labels)
    # Rounding up for the rare ones takes at most one image from each of the others.
    assert (np.abs(counts - quota) <= max(1, len(sizes) - 1)).all()
    assert count < len(sizes) or counts.min() >= 1


def test_a_balanced_set_stays_balanced():
    labels = np.arange(1000) % 10
    assert set(np.bincount(labels[stratified(labels, 250, "s")])) == {25}


def test_a_larger_part_contains_the_smaller_one_and_streams_differ():
    labels = np.arange(1000) % 10
    small, large = stratified(labels, 100, "s"), stratified(labels, 300, "s")
    assert set(small) <= set(large)
    assert set(small) != set(stratified(labels, 100, "t"))
    assert small.tolist() == stratified(labels, 100, "s").tolist()


def test_a_part_is_random_within_its_class():
    labels = np.zeros(1000, np.int64)
    assert abs(stratified(labels, 200, "s").mean() - 500) < 60


def test_limit_takes_images_with_their_labels():
    part = limited(numbered(), SimpleNamespace(train=50, test=None), 10, "x")
    assert len(part.train_x) == 50
    assert len(part.test_x) == 200
    assert (part.train_x[:, 0, 0, 0] % 10 == part.train_y).all()


def test_a_limit_beyond_the_set_takes_all():
    part = limited(numbered(), SimpleNamespace(train=1000, test=1), 10, "x")
    assert (len(part.train_x), len(part.test_x)) == (200, 1)


@pytest.mark.parametrize(
    ("train", "test", "message"),
    [
        (9, None, "limit.train is 9, expected 10 or more"),
        (None, 0, "limit.test is 0, expected 1 or more"),
        (-1, None, "limit.train is -1"),
    ],
)
def test_a_limit_that_leaves_a_class_out_is_refused(train, test, message):
    with pytest.raises(UserError, match=message):
        limited(numbered(), SimpleNamespace(train=train, test=test), 10, "x")


@pytest.mark.parametrize(
    ("train", "test", "num_classes", "message"),
    [
        ([0, 2], [0], None, "class 1 has no training image"),
        ([1, 2], [1], None, "class 0 has no training image"),
        ([0, 1], [0, 2], None, "class 2 has no training image"),
        ([0, 10**15], [0], None, "class 1 has no training image"),
        ([0, 1], [0], 3, "class 2 has no training image"),
        ([0, 1, 2], [0], 2, "a label is 2, expected 0 to 1"),
        ([0, -1], [0], None, "a label is -1"),
    ],
)
def test_classes_must_be_complete(train, test, num_classes, message):
    with pytest.raises(UserError, match=message):
        count_classes(labelled(train, test), "x", num_classes)


def test_classes_are_counted():
    assert count_classes(labelled([2, 0, 1], [1]), "x") == 3


@pytest.mark.parametrize("shape", [(5, 4, 6), (5, 4, 6, 1)])
def test_grey_is_copied_to_three_channels(shape):
    grey = np.arange(120, dtype=np.uint8).reshape(shape)
    images = channels_first(grey)
    assert images.shape == (5, 3, 4, 6)
    assert images.flags.c_contiguous
    assert all((images[:, c] == grey.reshape(5, 4, 6)).all() for c in range(3))


def test_channels_come_first():
    images = np.arange(2 * 4 * 5 * 3, dtype=np.uint8).reshape(2, 4, 5, 3)
    assert channels_first(images)[1, 2, 3, 4] == images[1, 3, 4, 2]


def prints(arrays):
    return fingerprint({key: describe(array) for key, array in arrays._asdict().items()})


@pytest.mark.parametrize(
    "change",
    [
        lambda a: a._replace(train_x=np.where(np.arange(2) == 1, a.train_x ^ 1, a.train_x)),
        lambda a: a._replace(test_y=1 - a.test_y),
        lambda a: a._replace(train_x=a.train_x.reshape(2, 3, 4, 1)),
        lambda a: a._replace(train_y=a.train_y.astype(np.int32)),
        lambda a: a._replace(
            train_x=a.test_x, train_y=a.test_y, test_x=a.train_x, test_y=a.train_y
        ),
    ],
    ids=["pixel", "label", "shape", "dtype", "swapped splits"],
)
def test_the_fingerprint_sees_every_change(change):
    arrays = labelled([0, 1], [1])
    assert prints(arrays) == prints(labelled([0, 1], [1]))
    assert prints(change(arrays)) != prints(arrays)
