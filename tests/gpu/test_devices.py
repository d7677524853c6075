"""Leases, energy and attacks on real devices."""

import warnings

import torch

from tests.unit.test_gpu_contract import random_set
from tnfdt import devices
from tnfdt.attack.trajectory import pgd_trajectory
from tnfdt.models import create_model


def test_two_jobs_lease_two_slots_and_a_device_says_its_energy(cuda):
    with devices.acquire("auto", 2) as first, devices.acquire("auto", 2) as second:
        assert {first.type, second.type} == {"cuda"}
        before = devices.energy_counter(first)
        torch.randn(4096, 4096, device=first).matmul(torch.randn(4096, 4096, device=first)).sum()
        after = devices.energy_counter(first)
    assert before is None or (after is not None and after >= before)


def attack_of(cuda, steps):
    """On the CPU's images: the attack there and on the GPU, and how often the latter waits."""
    devices.set_arithmetic("fp32", 1)
    torch.manual_seed(0)
    model = create_model("wrn10_1", 10, tensor_norm="paper").eval()
    data = random_set(10, torch.device("cpu"))
    images, labels = data.test_x.float() / 255, data.test_y
    expected = pgd_trajectory(model, images, labels, 0.01, steps=steps)
    model, pixels, classes = model.to(cuda), images.to(cuda), labels.to(cuda)
    model(pixels)  # the kernel is checked once, which waits
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        found = pgd_trajectory(model, pixels, classes, 0.01, steps=steps)
        torch.cuda.set_sync_debug_mode("default")
    assert (found.adversarial.cpu() - images).abs().max() <= 0.01 + 1e-6
    torch.testing.assert_close(found.loss.cpu(), expected.loss, rtol=1e-2, atol=1e-2)
    return sum("called a synchronizing" in str(item.message) for item in told)


def test_a_step_of_an_attack_does_not_wait_and_agrees_with_the_cpu(cuda):
    assert attack_of(cuda, steps=2) == attack_of(cuda, steps=7) > 0  # before the first step
