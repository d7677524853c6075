import torch

from tnfdt.core.seeding import derive, generator


def test_derived_seeds_are_fixed_for_ever():
    # The first 63 bits of SHA-256 of "0/init" and "2/order/7", computed by hand: another value
    # here means that no recorded cell can be re-run.
    assert derive(0, "init") == 1519069808562059438
    assert derive(2, "order/7") == 5429015924951041951
    assert 0 <= derive(2**32 - 1, "x" * 1000) < 2**63


def test_streams_and_seeds_are_independent():
    values = {derive(seed, stream) for seed in range(20) for stream in ("init", "order/0", "order")}
    assert len(values) == 60


def test_generator_starts_at_the_stream_state():
    first = torch.rand(5, generator=generator(3, "augment/1/2"))
    again = torch.rand(5, generator=generator(3, "augment/1/2"))
    other = torch.rand(5, generator=generator(3, "augment/1/3"))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
