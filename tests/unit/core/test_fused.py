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
shapes = [
    (2, 16, 3, 4), (1, 3, 5, 7), (3, 65, 1, 1), (2, 1, 4, 4), (1, 300, 3, 1), (4, 10),
    (2, 5, 18, 17),
]
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
    "transposed": fused.strides(torch.zeros(2, 3, 8, 8).transpose(2, 3)) is None,
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
    assert outcome["transposed"]
    assert outcome["empty"] == [0, 3, 2, 2]


def test_nan_stays_nan_and_the_start_up_check_passes(outcome):
    assert outcome["nan"]
    assert outcome["works"]


# Triton's compiler makes everything but the launch, for GPUs that are not there.
COMPILED = """
import itertools, torch
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from tnfdt.core import fused

class Driver:
    capability = 0
    def get_current_device(self): return self.capability
    def get_current_stream(self, device): return 0
    def get_current_target(self): return GPUTarget("cuda", self.capability, 32)

class Launcher:
    def __init__(self, kernel): self.kernel = kernel
    def __getitem__(self, grid):
        return lambda *args, **options: made.append(self.kernel.warmup(*args, grid=grid, **options))

made, pretended = [], Driver()
driver.set_active(pretended)
fused._forward, fused._backward = Launcher(fused._forward), Launcher(fused._backward)
cases = [(75, torch.float32), (80, torch.bfloat16), (90, torch.float16), (120, torch.float32)]
shapes = [(2, 64, 32, 32), (2, 2048, 4, 4), (3, 10, 1, 1), (1, 1, 1, 1)]
layouts = [torch.contiguous_format, torch.channels_last]
for (pretended.capability, dtype), shape, layout in itertools.product(cases, shapes, layouts):
    x = torch.randn(shape).to(dtype).contiguous(memory_format=layout)
    out, shut = fused.forward(x, inplace=True)
    fused.backward(x, out, shut, exact=layout is torch.channels_last)
assert all(kernel.asm["cubin"] for kernel in made)
print(len(made), max(kernel.metadata.shared for kernel in made))
"""


def test_it_compiles_for_real_gpus(tmp_path):
    """Not only for the interpreter, which takes what the compiler refuses."""
    environment = {**os.environ, "TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", COMPILED], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr[-3000:]
    kernels, shared = map(int, done.stdout.split())
    assert kernels == 64
    assert shared <= 48 * 1024
