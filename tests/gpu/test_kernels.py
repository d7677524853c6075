"""The fused kernel of ReLU and TN on a real GPU: its results, its memory and its time."""

import statistics

import pytest
import torch
from torch import nn

from tnfdt.core import tensor_norm
from tnfdt.core.tensor_norm import ReLUTensorNorm

fused = pytest.importorskip("tnfdt.core.fused", exc_type=ImportError)  # Triton is not everywhere


def expected_of(x, error, mode):
    """Output and error at the input, in double precision."""
    opened, error = x.double().relu(), error.double()
    passed = error - error.mean(1, keepdim=True) if mode == "exact" else error
    return opened - opened.mean(1, keepdim=True), passed * (x > 0)


@pytest.mark.parametrize("mode", ["paper", "exact"])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [(torch.float32, 1e-5), (torch.bfloat16, 2e-2), (torch.float16, 2e-3)],
)
def test_the_kernel_is_eq_1(cuda, monkeypatch, dtype, tolerance, layout, mode):
    assert fused.works_on(cuda)
    monkeypatch.setattr(tensor_norm, "has_fused_kernel", lambda x: True)
    chance = torch.Generator(cuda).manual_seed(0)
    for shape in ((8, 64, 32, 32), (3, 129, 7, 5), (5, 2048, 4, 4), (70_000, 10, 1, 1)):
        x, error = (torch.randn(shape, device=cuda, generator=chance).to(dtype) for _ in range(2))
        x = x.contiguous(memory_format=layout).requires_grad_()
        out = ReLUTensorNorm(mode)(x)
        out.backward(error)
        for found, expected in zip(
            (out, x.grad), expected_of(x.detach(), error, mode), strict=True
        ):
            close = {"rtol": tolerance, "atol": tolerance}
            torch.testing.assert_close(found.double(), expected, **close)
        assert not (x.grad * (x <= 0)).any()


def median_ms(run, times=30):
    """Of one call, on the GPU's clock."""
    for _ in range(5):
        run()
    events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(times)]
    for begin, end in events:
        begin.record()
        run()
        end.record()
    torch.cuda.synchronize()
    return statistics.median(begin.elapsed_time(end) for begin, end in events)


def step(module, x, error):
    x.grad = None
    module(x * 1).backward(error)


def test_tn_takes_the_memory_of_relu_and_less_time_than_without_the_kernel(cuda, monkeypatch):
    x = torch.randn(400, 64, 32, 32, device=cuda, requires_grad=True)  # enough to outlast the host
    error, peaks, times = torch.randn_like(x), {}, {}
    relu, tn = nn.ReLU(inplace=True), ReLUTensorNorm(inplace=True)
    for name, module, kernel in (("relu", relu, False), ("torch", tn, False), ("triton", tn, True)):
        monkeypatch.setattr(tensor_norm, "has_fused_kernel", lambda x, kernel=kernel: kernel)
        step(module, x, error)
        torch.cuda.reset_peak_memory_stats(cuda)
        step(module, x, error)
        peaks[name] = torch.cuda.max_memory_allocated(cuda)
        times[name] = median_ms(lambda module=module: step(module, x, error))
        print(f"{name}: {times[name]:.3f} ms, {peaks[name] / 2**20:.0f} MiB")
    assert peaks["triton"] <= 1.02 * peaks["relu"]
    assert times["triton"] < times["torch"]
