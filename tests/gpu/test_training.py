"""Training on a real GPU: no waits, the same bytes twice, the CPU's losses, every precision."""

import contextlib

import pytest
import torch

from tests.unit.test_gpu_contract import CONTROLS, PAPER, EnoughError, config_of, random_set
from tnfdt import devices
from tnfdt.study.schema import UserError
from tnfdt.train.recipe import Trainer

METHODS = list(PAPER.methods)
STEPS = 20


def losses(config, device, *, strict_after=None):
    """The stats [STEPS, 3] of a short training; from step `strict_after` on waiting is an error."""
    devices.set_arithmetic(config["precision"], 1)
    trainer = Trainer(config, random_set(10, device, count=8 * STEPS), device)

    def after_step():
        if trainer.step == strict_after:
            torch.cuda.set_sync_debug_mode("error")
        if trainer.step == STEPS:
            raise EnoughError

    with contextlib.suppress(EnoughError):
        trainer.run(after_step, lambda row: None)
    torch.cuda.set_sync_debug_mode("default")
    return trainer.stats[:STEPS].cpu()


@pytest.mark.parametrize("method", METHODS)
def test_a_step_never_waits_for_the_gpu(cuda, method):
    assert losses(config_of(method), cuda, strict_after=3).isfinite().all()


@pytest.mark.parametrize("control", CONTROLS)
def test_nor_does_one_with_a_control(cuda, control):
    config = config_of("vanilla", tensor_norm="paper", **CONTROLS[control])
    assert losses(config, cuda, strict_after=3).isfinite().all()


@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16"])
@pytest.mark.parametrize("when", ["each", "after"])
def test_nor_does_one_in_another_precision_or_order(cuda, when, precision):
    config = config_of("tn_fdt", precision=precision)
    config["blend"] = {**config["blend"], "augment": when}
    assert losses(config, cuda, strict_after=3).isfinite().all()


@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16"])
@pytest.mark.parametrize("method", ["vanilla", "tn_fdt"])
def test_the_same_bytes_twice(cuda, method, precision):
    config = config_of(method, precision=precision)
    assert torch.equal(losses(config, cuda), losses(config, cuda))


@pytest.mark.parametrize("method", METHODS)
def test_the_first_steps_agree_with_the_cpu(cuda, method):
    config = config_of(method)
    found, expected = losses(config, cuda), losses(config, torch.device("cpu"))
    # Later ones need not: a unit that rounding shuts moves a loss by a thousandth by step five.
    torch.testing.assert_close(found[:3], expected[:3], rtol=1e-3, atol=1e-3)


def test_bf16_learns_what_fp32_learns(cuda):
    exact, half = (losses(config_of("fdt", precision=p), cuda) for p in ("fp32", "bf16"))
    torch.testing.assert_close(half[:5, :2], exact[:5, :2], rtol=0.05, atol=0.05)


def test_compiled_gives_the_same_bytes_twice(cuda):
    config = config_of("tn", compile=True)
    assert torch.equal(losses(config, cuda), losses(config, cuda))


def test_out_of_memory_is_one_line(cuda):
    with (
        pytest.raises(UserError, match="out of GPU memory"),
        devices.memory_errors("out of GPU memory"),
    ):
        torch.empty(2**50, dtype=torch.uint8, device=cuda)
