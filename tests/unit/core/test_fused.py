"""The fused kernel of ReLU and TN against torch's operators, run by Triton's interpreter."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("triton")

# Triton decides at its import whether to interpret, so the cases run in a process of their own.
CASES = """
import itertools, json, torch
from tnfdt.core import fused

def layouts(x):
    yield "contiguous", x
    if x.dim() == 4:
        yield "channels_last", x.contiguous(memory_format=torch.channels_last)

def reference(x, error, exact):
    a, g = x.double().relu(), error.double()
    passed = g - g.mean(1, keepdim=True) if exact else g
    return a - a.mean(1, keepdim=True), passed * (x > 0)

failures = []
shapes = [(2, 16, 3, 4), (1, 3, 5, 7), (3, 65, 1, 1), (2, 1, 4, 4), (1, 300, 3, 1), (4, 10)]
tolerances = {torch.float32: 2e-6, torch.bfloat16: 1.6e-2, torch.float16: 2e-3}  # absolute
for (number, shape), (dtype, tol), exact in itertools.product(
    enumerate(shapes), tolerances.items(), (False, True)
):
    inplace = (number + exact) % 2 == 0
    generator = torch.Generator().manual_seed(len(shape) + shape[1])
    x, error = (torch.randn(shape, generator=generator).to(dtype) for _ in range(2))
    x[torch.rand(shape, generator=generator) < 0.1] = 0
    x[torch.rand(shape, generator=generator) < 0.1] = 1e-6  # open, far below the mean's rounding
    for name, laid in layouts(x):
        given = laid.clone()
        out, shut = fused.forward(given, inplace=inplace)
        found = fused.backward(error, out, shut, exact=exact)
        expected, passed = reference(x, error, exact)
        near = torch.allclose(out.double(), expected, atol=tol, rtol=tol)
        back = torch.allclose(found.double(), passed, atol=tol, rtol=tol)
        mask = torch.equal(found != 0, (passed.to(dtype) != 0)) if not exact else True
        opened = torch.equal(out != shut, x > 0)
        kept = (given.data_ptr() == out.data_ptr()) if inplace else torch.equal(given, laid)
        if not (near and back and mask and opened and kept and out.stride() == laid.stride()):
            failures.append([shape, str(dtype), exact, inplace, name, near, back, mask, opened])
nan = torch.tensor([[1.0, float("nan"), 2.0]])
out, _ = fused.forward(nan, inplace=False)
print(json.dumps({
    "failures": failures,
    "nan": bool(out.isnan().all()),
    "works": fused.works_on(torch.device("cpu")),
    "strided": fused.strides(torch.zeros(2, 3, 8, 8)[:, :, ::2, ::2]) is None,
    "empty": list(fused.forward(torch.zeros(0, 3, 2, 2), inplace=False)[0].shape),
}))
"""


@pytest.fixture(scope="module")
def outcome() -> dict[str, object]:
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run(
        [sys.executable, "-c", CASES], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr[-3000:]
    result: dict[str, object] = json.loads(done.stdout)
    return result


def test_forward_backward_and_mask_in_every_layout_and_precision(outcome):
    assert outcome["failures"] == []


def test_what_the_kernel_cannot_take_is_left_to_torch(outcome):
    assert outcome["strided"]
    assert outcome["empty"] == [0, 3, 2, 2]


def test_nan_stays_nan_and_the_start_up_check_passes(outcome):
    assert outcome["nan"]
    assert outcome["works"]
