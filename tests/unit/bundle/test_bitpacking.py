"""Arrays of a bundle: what goes in comes out, in few bytes, and wrong sizes are errors."""

import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from tnfdt.bundle import bitpacking

SHAPES = arrays.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=9)
ARRAYS = st.sampled_from(["bool", "int16", "int64", "uint8"]).flatmap(
    lambda dtype: arrays.arrays(dtype, SHAPES)
)


@given(st.dictionaries(st.text("abc", min_size=1), ARRAYS, max_size=3))
def test_arrays_come_back_as_they_were(given):
    back = bitpacking.decode(bitpacking.encode(given), bitpacking.describe(given))
    assert list(back) == list(given)
    for name, array in given.items():
        assert back[name].dtype == array.dtype
        np.testing.assert_array_equal(back[name], array)


@pytest.mark.parametrize("shape", [[3, 8], [5, 8], [2**31, 2**31]])
def test_a_shape_that_is_not_of_the_bytes_is_an_error(shape):
    data = bitpacking.encode({"correct": np.ones((4, 8), bool)})
    with pytest.raises(ValueError, match="bytes"):
        bitpacking.decode(data, {"correct": ["bool", shape]})


def trajectory(random, images=10_000, steps=40):
    """Right until a step of its own, 3 in 10 for ever; near that step 1 in 10 flickers."""
    turn, step = random.geometric(0.12, images), np.arange(1, steps + 1)[:, None]
    right = (step < turn) | (random.random(images) < 0.3)
    return right ^ ((random.random(right.shape) < 0.1) & (abs(step - turn) < 8))


def test_the_papers_arrays_stay_small():
    """288 attacks of 10,000 images, even as restless as these, fit into a quarter of 30 MB."""
    correct = trajectory(np.random.default_rng(0))
    data = bitpacking.encode({"correct": correct, "indices": np.arange(10_000)})
    assert 288 * len(zlib.compress(data, 9)) < 7.5e6
