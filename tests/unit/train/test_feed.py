"""The feed: draws made ahead in a thread, packed into one buffer, and cut into batches."""

import threading

import pytest
import torch

from tnfdt.train.feed import Batch, batch_bounds, batches, pack, prefetched

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("count", "size", "sizes"),
    [
        (23, 5, [5, 5, 5, 5, 3]),
        (25, 5, [5, 5, 5, 5, 5]),
        (26, 5, [5, 5, 5, 5, 6]),
        (6, 5, [6]),
        (1, 5, [1]),
        (3, 1, [1, 1, 1]),
        (3, 2, [3]),
    ],
)
def test_bounds_cover_every_image_once(count, size, sizes):
    bounds = batch_bounds(count, size)
    assert [last - first for first, last in bounds] == sizes
    assert [image for first, last in bounds for image in range(first, last)] == list(range(count))


def test_packed_tensors_come_back_with_their_types_and_shapes():
    draws = (
        torch.arange(7),
        torch.rand(3, 5),
        torch.tensor([True, False, True]),
        torch.rand(2, 2, dtype=torch.float64),
        torch.arange(0),
        torch.arange(12).view(3, 4).t(),
    )
    packed = pack(draws, CPU)
    assert packed.buffer.dtype == torch.uint8
    for before, after in zip(draws, packed.unpack(CPU), strict=True):
        assert after.dtype == before.dtype
        assert torch.equal(after, before)


def test_prefetched_keeps_the_order_and_works_one_ahead():
    made = []

    def make(step):
        made.append((step, threading.current_thread().name))
        return step

    found = []
    for step in prefetched(make, range(5)):
        found.append(step)
    assert found == list(range(5))
    assert [step for step, _ in made] == list(range(5))
    assert all(name != threading.current_thread().name for _, name in made)


def test_prefetched_makes_the_next_one_while_one_is_used():
    ready = [threading.Event() for _ in range(3)]

    def make(step):
        ready[step].set()

    steps = prefetched(make, range(3))
    next(steps)
    assert ready[1].wait(10)
    assert not ready[2].is_set()
    steps.close()


def test_an_error_in_the_thread_is_the_callers():
    def make(step):
        if step == 1:
            raise ValueError("of step 1")
        return step

    steps = prefetched(make, range(3))
    assert next(steps) == 0
    with pytest.raises(ValueError, match="of step 1"):
        next(steps)


class Numbers:
    steps = 4

    def draw(self, epoch, step):
        return (torch.tensor([10 * epoch + step]),)

    def batch(self, draws):
        return Batch(draws[0].float(), draws[0], None)


@pytest.mark.parametrize("start", [0, 2, 4])
def test_batches_start_where_they_are_told(start):
    found = [int(batch.classes) for batch in batches(Numbers(), 3, start, CPU)]
    assert found == [30, 31, 32, 33][start:]
