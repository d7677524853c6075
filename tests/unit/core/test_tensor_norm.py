"""Tensor normalization against Alg. 1 written down loop for loop, in float64."""

from __future__ import annotations

import copy
import pickle
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import tnfdt.core
from tnfdt.core import tensor_norm as module
from tnfdt.core.tensor_norm import ReLUTensorNorm, insert_tensor_norm, set_backward, tensor_norm

MODES = ("paper", "exact")


def naive_tn_mean(a: Tensor) -> Tensor:
    """Eq. 1 for one tensor A [Z, Y, X]."""
    depth, height, width = a.shape
    mean = torch.zeros(height, width, dtype=a.dtype)
    for y in range(height):
        for x in range(width):
            for z in range(depth):
                mean[y, x] += a[z, y, x] / depth
    return mean


def naive_forward(a: Tensor) -> Tensor:
    """Alg. 1 on a batch [N, Z, Y, X], over all channels."""
    out = torch.zeros_like(a)
    for n in range(len(a)):
        mean = naive_tn_mean(a[n])
        for z in range(a.shape[1]):
            out[n, z] = a[n, z] - mean
    return out


def naive_backward(x: Tensor, error: Tensor, mode: str) -> Tensor:
    """The error at the ReLU's input: passed through, or the true derivative of A − mean(A)."""
    depth = x.shape[1]
    passed = torch.zeros_like(error)
    for z in range(depth):
        passed[:, z] = error[:, z]
        if mode == "exact":
            for other in range(depth):
                passed[:, z] -= error[:, other] / depth
    return torch.where(x > 0, passed, torch.zeros_like(passed))


def random_batch(seed: int, shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(shape, dtype=torch.float64, generator=generator)
    x[torch.rand(shape, generator=generator) < 0.1] = 0.0  # exact zeros lie on the ReLU's edge
    return x, torch.randn(shape, dtype=torch.float64, generator=generator)


SHAPES = st.tuples(*(st.integers(1, high) for high in (3, 7, 4, 4)))


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**31), shape=SHAPES, mode=st.sampled_from(MODES), inplace=st.booleans())
def test_module_is_relu_then_alg_1(
    seed: int, shape: tuple[int, ...], mode: Any, inplace: bool
) -> None:
    x, error = random_batch(seed, shape)
    leaf = x.clone().requires_grad_()
    out = ReLUTensorNorm(mode, inplace=inplace)(leaf * 1)
    out.backward(error)
    torch.testing.assert_close(out, naive_forward(x.clamp(min=0)), rtol=0, atol=1e-9)
    assert leaf.grad is not None
    torch.testing.assert_close(leaf.grad, naive_backward(x, error, mode), rtol=0, atol=1e-9)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**31), shape=SHAPES, mode=st.sampled_from(MODES))
def test_function_is_alg_1(seed: int, shape: tuple[int, ...], mode: Any) -> None:
    x, error = random_batch(seed, shape)
    leaf = x.clone().requires_grad_()
    out = tensor_norm(leaf, mode)
    out.backward(error)
    expected = naive_backward(torch.ones_like(x), error, mode)  # no ReLU: open everywhere
    torch.testing.assert_close(out, naive_forward(x), rtol=0, atol=1e-9)
    assert leaf.grad is not None
    torch.testing.assert_close(leaf.grad, expected, rtol=0, atol=1e-9)


def test_last_channel_is_normalized_too() -> None:
    x = torch.tensor([1.0, 2.0, 6.0]).view(1, 3, 1, 1)
    assert ReLUTensorNorm()(x).flatten().tolist() == [-2.0, -1.0, 3.0]


def test_vector_is_one_pixel() -> None:
    x = torch.randn(4, 6)
    expected = ReLUTensorNorm()(x[:, :, None, None])[:, :, 0, 0]
    assert torch.equal(ReLUTensorNorm()(x), expected)


@pytest.mark.parametrize("inplace", [False, True])
def test_exact_mode_passes_gradcheck_and_gradgradcheck(inplace: bool) -> None:
    x = torch.randn(2, 5, 3, 3, dtype=torch.float64)
    x = (x + x.sign() * 0.1).requires_grad_()  # away from the kink, where a difference is wrong
    module = ReLUTensorNorm("exact", inplace=inplace)
    assert torch.autograd.gradcheck(lambda x: module(x * 1), (x,))
    assert torch.autograd.gradgradcheck(lambda x: module(x * 1), (x,))


def test_paper_mode_is_not_the_true_gradient() -> None:
    x = torch.rand(2, 5, 3, 3, dtype=torch.float64, requires_grad=True)
    assert not torch.autograd.gradcheck(ReLUTensorNorm("paper"), (x,), raise_exception=False)


def saved_bytes(run: Callable[[], Tensor]) -> int:
    """Bytes of distinct storages that autograd keeps for the backward pass."""
    storages: dict[int, Any] = {}

    def keep(tensor: Tensor) -> Tensor:
        storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        run()
    return sum(storage.nbytes() for storage in storages.values())


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("inplace", [False, True])
def test_saves_no_activation_beyond_the_next_layers(mode: Any, inplace: bool) -> None:
    first, last = nn.Conv2d(8, 64, 1), nn.Conv2d(64, 4, 1)
    x = torch.randn(2, 8, 8, 8)
    relu = saved_bytes(lambda: last(nn.ReLU(inplace=inplace)(first(x))))
    both = saved_bytes(lambda: last(ReLUTensorNorm(mode, inplace=inplace)(first(x))))
    mean = 2 * 8 * 8 * x.element_size()
    assert both == relu + mean


@pytest.mark.parametrize("mode", MODES)
def test_channels_last_stays_channels_last(mode: Any) -> None:
    x = torch.randn(2, 8, 5, 5).to(memory_format=torch.channels_last).requires_grad_()
    out = ReLUTensorNorm(mode)(x)
    out.backward(torch.ones_like(out))
    assert out.is_contiguous(memory_format=torch.channels_last)
    assert x.grad is not None
    assert x.grad.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(out, ReLUTensorNorm(mode)(x.detach().contiguous()))


@pytest.mark.parametrize("mode", MODES)
def test_works_under_autocast(mode: Any) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(inplace=True), nn.Conv2d(16, 4, 3))
    insert_tensor_norm(model, mode)
    x = torch.randn(2, 3, 8, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = model(x)
    out.float().sum().backward()
    torch.testing.assert_close(out.float(), model(x), rtol=0.05, atol=0.05)
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in model.parameters())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_mask_survives_low_precision(dtype: torch.dtype) -> None:
    """A shut ReLU never leaks; an open one is shut only if it is lost in the mean's rounding."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(4, 64, 8, 8, generator=generator).to(dtype).requires_grad_()
    out = ReLUTensorNorm("paper")(x)
    out.backward(torch.ones_like(out))
    assert x.grad is not None
    opened, positive = x.grad > 0, x > 0
    assert not (opened & ~positive).any()
    assert (positive & ~opened).float().mean() < 1e-3


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("inplace", [False, True])
def test_compiles_without_graph_break(mode: Any, inplace: bool) -> None:
    module = ReLUTensorNorm(mode, inplace=inplace)
    compiled = torch.compile(lambda x: module(x * 1) * 2, backend="aot_eager", fullgraph=True)
    x, error = random_batch(0, (2, 5, 3, 3))
    grads = []
    for function in (compiled, lambda x: module(x * 1) * 2):
        leaf = x.clone().requires_grad_()
        function(leaf).backward(error)
        grads.append(leaf.grad)
    torch.testing.assert_close(grads[0], grads[1])


def test_public_function_compiles_and_is_not_hidden_by_its_module() -> None:
    x = torch.randn(2, 3, 4, 4)
    compiled = torch.compile(tnfdt.tensor_norm, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), tensor_norm(x))


class Shared(nn.Module):
    """One ReLU used twice and registered twice, as users do, and one inside a list."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3)
        self.relu = nn.ReLU(inplace=True)
        self.again = self.relu
        self.more = nn.ModuleList([nn.Sequential(nn.ReLU())])

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.more[0](self.again(self.conv2(self.relu(self.conv1(x)))))
        return out


def test_insertion_reaches_shared_and_nested_modules() -> None:
    model = Shared().eval()
    names = list(model.state_dict())
    assert insert_tensor_norm(model, "exact") is model
    assert model.relu is model.again
    found = [module for module in model.modules() if isinstance(module, ReLUTensorNorm)]
    assert len(found) == 2
    assert [module.inplace for module in found] == [True, False]
    assert not any(isinstance(module, nn.ReLU) or module.training for module in model.modules())
    assert list(model.state_dict()) == names
    out = model(torch.randn(1, 3, 8, 8))
    torch.testing.assert_close(out.mean(1), torch.zeros(1, 4, 4), rtol=0, atol=1e-6)


def test_model_survives_deepcopy_and_pickle() -> None:
    model = insert_tensor_norm(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten()), "exact")
    x = torch.randn(2, 3, 5, 5)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert other[1].backward_mode == "exact"
        assert torch.equal(other(x), model(x))


def test_backward_can_be_switched() -> None:
    model = insert_tensor_norm(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()))
    x = torch.randn(2, 3, 5, 5, requires_grad=True)

    def gradient() -> Tensor:
        return torch.autograd.grad((model(x) ** 3).sum(), x)[0]

    paper = gradient()
    assert set_backward(model, "exact") is model
    exact = gradient()
    assert not torch.allclose(paper, exact)
    assert torch.equal(gradient(), exact)
    set_backward(model, "paper")
    assert torch.equal(gradient(), paper)


BAD: list[tuple[Callable[[], object], str]] = [
    (lambda: tensor_norm(torch.rand(3, 4, 4)), r"x: expected \[N, C, H, W\].*\(3, 4, 4\)"),
    (lambda: tensor_norm(torch.ones(1, 3, 4, 4, dtype=torch.uint8)), "x: .*floating.*uint8"),
    (lambda: tensor_norm(torch.rand(1, 3, 4, 4), "true"), "backward: .*'true'"),  # type: ignore[arg-type]
    (lambda: ReLUTensorNorm("true"), "backward: "),  # type: ignore[arg-type]
    (lambda: ReLUTensorNorm()(torch.rand(2, 5, 4)), "x: expected"),
    (lambda: set_backward(nn.ReLU(), "true"), "backward: "),  # type: ignore[arg-type]
    (lambda: insert_tensor_norm(nn.Sequential(nn.GELU())), "model: .*no nn.ReLU"),
    (lambda: insert_tensor_norm(nn.Sequential(ReLUTensorNorm())), "model: .*already"),
    (lambda: insert_tensor_norm(nn.ReLU()), "model: .*ReLUTensorNorm"),
]


@pytest.mark.parametrize(("call", "message"), BAD)
def test_bad_input_is_named(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_without_triton_one_line_is_logged_and_no_import_repeated(monkeypatch, caplog):
    monkeypatch.delattr(tnfdt.core, "fused", raising=False)
    monkeypatch.setitem(sys.modules, "tnfdt.core.fused", None)
    module._fused.cache_clear()
    on_gpu = SimpleNamespace(device=torch.device("cuda"))
    try:
        assert not any(module.has_fused_kernel(on_gpu) for _ in range(2))
    finally:
        module._fused.cache_clear()
    assert len(caplog.messages) == 1
