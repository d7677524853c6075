"""Tensor normalization (Eq. 1, Alg. 1): subtract the mean over channels at every pixel.

The paper passes the error straight through ("the subtraction equation in the derivative
becomes 1"); the true derivative also subtracts the error's mean over channels. Both are
here, as backward="paper" and backward="exact".
"""

from __future__ import annotations

import logging
from functools import cache
from types import ModuleType
from typing import Any, Literal, TypeVar, get_args

import torch
from torch import Tensor, nn

__all__ = ["Backward", "ReLUTensorNorm", "insert_tensor_norm", "set_backward", "tensor_norm"]

Backward = Literal["paper", "exact"]
ModelT = TypeVar("ModelT", bound=nn.Module)
log = logging.getLogger(__name__)


def tensor_norm(x: Tensor, backward: Backward = "paper") -> Tensor:
    """Eq. 1: A* = A − TNMean(A), the mean over the channels z at each (x, y).

    x: floating point [N, C, H, W], or [N, C] as one pixel. Returns the same shape, dtype and
    memory format. backward: "paper" passes the error on unchanged (Alg. 1), "exact" is the
    true derivative. Neither saves anything for the backward pass.
    """
    _check_backward(backward)
    _check_input(x)
    mean = x.mean(1, keepdim=True)
    return x - (mean.detach() if backward == "paper" else mean)


class ReLUTensorNorm(nn.Module):
    """ReLU followed by tensor normalization (Alg. 1) as one function of [N, C, H, W] or [N, C].

    It saves its own output, which the next convolution keeps anyway, and the one-channel mean:
    no more memory than a ReLU. `inplace` overwrites the input as `nn.ReLU(inplace=True)` does.
    """

    def __init__(self, backward: Backward = "paper", *, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace
        self.backward_mode = _check_backward(backward)

    def forward(self, x: Tensor) -> Tensor:
        _check_input(x)
        # A compiler plans memory by itself, and cannot trace a function that marks its input dirty.
        inplace = self.inplace and not torch.compiler.is_compiling()
        out: Tensor = _ReLUTensorNorm.apply(x, self.backward_mode == "exact", inplace)
        return out

    def extra_repr(self) -> str:
        return f"backward={self.backward_mode!r}" + (", inplace=True" if self.inplace else "")


class _ReLUTensorNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, exact: bool, inplace: bool) -> Tensor:
        ctx.exact, ctx.fused = exact, has_fused_kernel(x)
        if inplace:
            ctx.mark_dirty(x)
        if ctx.fused:
            from tnfdt.core import fused

            out, mean = fused.forward(x, inplace=inplace)
        else:
            out = torch.relu_(x) if inplace else torch.relu(x)
            mean = out.mean(1, keepdim=True)
            out.sub_(mean)
        ctx.save_for_backward(out, mean)
        return out

    @staticmethod
    def backward(ctx: Any, *errors: Tensor) -> tuple[Tensor, None, None]:
        (error,) = errors
        out, mean = ctx.saved_tensors
        if ctx.fused:
            return _fused_error(error, out, mean, ctx.exact), None, None
        if ctx.exact:
            error = error - error.mean(1, keepdim=True)
        # The ReLU was open where out > −mean: where it was shut, out is exactly −mean. An
        # activation below the rounding of the mean is as good as zero here, as it is in `out`.
        return _where_positive(error, out + mean), None, None


def has_fused_kernel(x: Tensor) -> bool:
    """Whether ReLU and TN of `x` run as one kernel: on a GPU where Triton is there and agrees."""
    if x.device.type != "cuda" or torch.compiler.is_compiling():
        return False
    fused = _fused()
    if fused is None or x.dtype not in fused.DTYPES or fused.strides(x) is None:
        return False
    return bool(fused.works_on(x.device))


@cache
def _fused() -> ModuleType | None:
    """The kernel; asked once, as an import that fails is slow and would fail at each layer."""
    try:
        from tnfdt.core import fused
    except ImportError as error:
        log.warning("tensor normalization runs without its fused kernel: %s", error)
        return None
    return fused


def _fused_error(error: Tensor, out: Tensor, shut: Tensor, exact: bool) -> Tensor:
    from tnfdt.core import fused

    if not torch.is_grad_enabled():
        return fused.backward(error, out, shut, exact=exact)
    passed = error - error.mean(1, keepdim=True) if exact else error
    return passed * (out != shut)


def _where_positive(error: Tensor, activation: Tensor) -> Tensor:
    """`error` where activation > 0, else 0; the activation's memory is used up if it may be."""
    threshold = torch.ops.aten.threshold_backward
    if torch.is_grad_enabled() or torch.compiler.is_compiling():
        result: Tensor = threshold(error, activation, 0)
    else:
        result = threshold.grad_input(error, activation, 0, grad_input=activation)
    return result


def insert_tensor_norm(model: ModelT, backward: Backward = "paper") -> ModelT:
    """Put tensor normalization after every `nn.ReLU` of `model`, in place, and return it.

    Parameters, buffers and their names stay as they are. A ReLU called as a function
    (`F.relu`) is not a module and cannot be found.
    """
    _check_backward(backward)
    if isinstance(model, nn.ReLU):
        raise ValueError("model: a bare nn.ReLU cannot be replaced; use ReLUTensorNorm() instead")
    replaced: dict[nn.ReLU, ReLUTensorNorm] = {}
    for parent in list(model.modules()):
        for name, child in parent._modules.items():
            if isinstance(child, nn.ReLU):
                setattr(parent, name, replaced.setdefault(child, _replacement(child, backward)))
    if not replaced:
        raise ValueError(f"model: {_no_relu(model)}")
    return model


def set_backward(model: ModelT, backward: Backward) -> ModelT:
    """Switch every tensor normalization of `model` to "paper" or "exact", and return the model.

    A model without tensor normalization is returned as it is: its gradient is exact already.
    """
    _check_backward(backward)
    for module in model.modules():
        if isinstance(module, ReLUTensorNorm):
            module.backward_mode = backward
    return model


def _replacement(relu: nn.ReLU, backward: Backward) -> ReLUTensorNorm:
    return ReLUTensorNorm(backward, inplace=relu.inplace).train(relu.training)


def _no_relu(model: nn.Module) -> str:
    if any(isinstance(module, ReLUTensorNorm) for module in model.modules()):
        return "tensor normalization is in it already; use set_backward to change its backward"
    return (
        f"{type(model).__name__} has no nn.ReLU module to put tensor normalization after; "
        "use nn.ReLU in place of F.relu and of other activations"
    )


def _check_backward(backward: Backward) -> Backward:
    if backward not in get_args(Backward):
        raise ValueError(f"backward: expected 'paper' or 'exact', got {backward!r}")
    return backward


def _check_input(x: Tensor) -> None:
    if x.dim() not in (2, 4):
        raise ValueError(
            f"x: expected [N, C, H, W] (or [N, C]), got {x.dim()} dimensions {tuple(x.shape)}"
        )
    if not x.is_floating_point():
        raise ValueError(f"x: expected a floating point tensor, got {x.dtype}")
