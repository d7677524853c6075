"""Per-image results in few bytes: each row as its difference to the row before, bools as bits.

An image that PGD has turned mostly stays turned, so the differences along the iterates are nearly
all zero, and deflate makes a fifth of the bits; the positions of the attacked images ascend, so
theirs are nearly all one. Nothing is parsed on the way back: types and shapes come from the
bundle's manifest and must account for every byte.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tnfdt.files.atomic import Array, Arrays

Described = dict[str, list[Any]]  # array: [dtype, shape], in the order of the bytes


def describe(arrays: Arrays) -> Described:
    return {name: [str(array.dtype), list(array.shape)] for name, array in arrays.items()}


def encode(arrays: Arrays) -> bytes:
    """The bytes of arrays of bools and integers, one after the other."""
    return b"".join(_encode(array) for array in arrays.values())


def decode(data: bytes, described: Described) -> Arrays:
    """The arrays again; a ValueError if they do not take up exactly these bytes."""
    arrays, start = {}, 0
    for name, (dtype, shape) in described.items():
        end = start + _stored(dtype, shape)
        if end > len(data):
            raise ValueError(f"{len(data)} bytes, too few for {name}")
        arrays[name] = _decode(data[start:end], dtype, shape)
        start = end
    if start != len(data):
        raise ValueError(f"{len(data)} bytes, its arrays need {start}")
    return arrays


def _encode(array: Array) -> bytes:
    if array.dtype == np.bool_:
        changed = array.copy()
        if array.ndim > 1:
            changed[1:] ^= array[:-1]
        return np.packbits(changed).tobytes()
    steps = array.copy()
    steps[1:] -= array[:-1]
    return steps.astype(array.dtype.newbyteorder("<")).tobytes()


def _decode(data: bytes, dtype: str, shape: list[int]) -> Array:
    if dtype == "bool":
        bits = np.unpackbits(np.frombuffer(data, np.uint8), count=math.prod(shape))
        changed = bits.reshape(shape)
        whole = np.bitwise_xor.accumulate(changed, axis=0) if len(shape) > 1 else changed
        return whole.astype(np.bool_)
    steps = np.frombuffer(data, np.dtype(dtype).newbyteorder("<")).reshape(shape)
    return np.cumsum(steps, axis=0, dtype=dtype)


def _stored(dtype: str, shape: list[int]) -> int:
    count = math.prod(shape)
    return -(-count // 8) if dtype == "bool" else count * np.dtype(dtype).itemsize
