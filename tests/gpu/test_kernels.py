"""The fused kernel of ReLU and TN on a real GPU: its results, its memory and its time."""

import statistics

import pytest
import torch
from torch import nn

from tnfdt.core import fused, tensor_norm
from tnfdt.core.tensor_norm import ReLUTensorNorm


def both(monkeypatch, x, error, mode):
    """Output and error at the input, by the kernel and by torch's operators."""
    results = []
    for kernel in (True, False):
        monkeypatch.setattr(tensor_norm, "has_fused_kernel", lambda _, kernel=kernel: kernel)
        leaf = x.clone(memory_format=torch.preserve_format).requires_grad_()
        out = ReLUTensorNorm(mode)(leaf)
        out.backward(error)
        results.append((out.detach(), leaf.grad))
    return results


@pytest.mark.parametrize("mode", ["paper", "exact"])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("dtype", fused.DTYPES)
def test_the_kernel_agrees_with_torch(cuda, monkeypatch, dtype, layout, mode):
    assert fused.works_on(cuda)
    chance = torch.Generator(cuda).manual_seed(0)
    tolerance = {torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 2e-3}[dtype]
    for shape in ((8, 64, 32, 32), (3, 129, 7, 5), (5, 1000, 1, 1)):
        x, error = (torch.randn(shape, device=cuda, generator=chance).to(dtype) for _ in range(2))
        x = x.contiguous(memory_format=layout)
        (out, back), (expected, passed) = both(monkeypatch, x, error, mode)
        torch.testing.assert_close(out, expected, rtol=tolerance, atol=tolerance)
        opened = (x > 0).to(dtype)  # torch's own mask loses units in bf16
        torch.testing.assert_close(back * opened, passed * opened, rtol=tolerance, atol=tolerance)
        assert not (back * (1 - opened)).any()


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
    out = module(x * 1)
    out.backward(error)


def test_tn_takes_no_more_memory_than_relu_and_little_more_time(cuda):
    x = torch.randn(100, 64, 32, 32, device=cuda, requires_grad=True)
    error = torch.randn_like(x)
    peaks, times = {}, {}
    for name, module in {"relu": nn.ReLU(inplace=True), "tn": ReLUTensorNorm(inplace=True)}.items():
        torch.cuda.reset_peak_memory_stats(cuda)
        step(module, x, error)
        peaks[name] = torch.cuda.max_memory_allocated(cuda)
        times[name] = median_ms(lambda module=module: step(module, x, error))
    print(f"TN against ReLU: memory {peaks['tn'] / peaks['relu']:.3f}, time "
          f"{times['tn'] / times['relu']:.3f}")  # fmt: skip
    assert peaks["tn"] <= 1.02 * peaks["relu"]
