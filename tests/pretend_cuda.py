"""A GPU that is not there, to find what would stop or stall on a real one; needs no driver.

Inside `PretendCuda()` a tensor sent to "cuda" becomes a `GpuTensor`: Python sees device cuda:0,
the inside is a fake (shapes only) or, with values=True, a real CPU tensor. CPU tensors stay
real, so that draws on the CPU have values. Every operator passes through the mode, which
refuses mixed devices as CUDA would, and notes whatever makes the host wait, with its line of
tnfdt: item, tolist and bool, copies to the host, blocking copies to the device, non-blocking ones
from memory that is not pinned, nonzero and boolean masks, CPU indices into a CUDA tensor.

torch's own FakeTensorMode on "cuda" does not do without a driver: module.to("cuda") and backward()
fail in torch 2.15.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import torch
import torch.optim.optimizer as torch_optimizer
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils._pytree import tree_leaves, tree_map

CPU, CUDA = torch.device("cpu"), torch.device("cuda:0")
_PACKAGE = str(Path(__file__).parents[1] / "tnfdt")
_SHAPE_FROM_VALUES = {
    "nonzero", "masked_select", "unique", "_unique2", "unique_dim", "bincount",
}  # fmt: skip
_INDEXING = {"index", "index_put_", "index_put", "_unsafe_index", "_index_put_impl_"}
_NO_KERNEL = {
    "detach", "empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "alias",
    "lift_fresh",
}  # fmt: skip


class Event(NamedTuple):
    """Something that a step does between host and device."""

    what: str
    where: str
    nbytes: int = 0


class GpuTensor(torch.Tensor):
    """A tensor that says it is on cuda:0; `inner` holds its shape or its values."""

    @staticmethod
    def __new__(cls, inner):
        self = torch.Tensor._make_wrapper_subclass(
            cls,
            inner.shape,
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            device="cpu",
            requires_grad=inner.requires_grad,
        )
        self.inner = inner
        return self

    __torch_function__ = torch._C._disabled_torch_function_impl
    device = property(lambda self: CUDA)
    is_cuda = property(lambda self: True)

    def __repr__(self):
        return f"GpuTensor({tuple(self.shape)}, {self.dtype})"

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise RuntimeError(f"{func} on a GpuTensor outside of PretendCuda")


GpuTensor.__module__ = "torch.pretend_cuda"  # eagerpy looks at the name
if GpuTensor not in torch_optimizer._foreach_supported_types:  # as a real CUDA tensor
    torch_optimizer._foreach_supported_types.append(GpuTensor)


class _Methods(TorchFunctionMode):
    """Methods that torch answers in C++ from the tensor's memory, where it lies on the CPU."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if not args or not isinstance(args[0], GpuTensor):
            return func(*args, **kwargs)
        if func in (torch.Tensor.tolist, torch.Tensor.numpy):
            return func(torch.ops.aten._to_copy(args[0].detach(), device=CPU))
        if func is torch.Tensor.cpu:
            return torch.ops.aten._to_copy(args[0], device=CPU)
        if func is torch.Tensor.to:
            return self._to(*args, **kwargs)
        return func(*args, **kwargs)

    def _to(self, x, *args, device=None, **kwargs):
        places = [place for place in (*args, device) if isinstance(place, (torch.device, str))]
        dtypes = [dtype for dtype in args if isinstance(dtype, torch.dtype)]
        if places and torch.device(places[0]).type == "cpu":
            dtype = next(iter(dtypes), kwargs.get("dtype"))
            return torch.ops.aten._to_copy(x, device=CPU, dtype=dtype)
        known = ("dtype", "memory_format", "copy")
        rest = {key: value for key, value in kwargs.items() if value is not None and key in known}
        return torch.Tensor.to(x, *dtypes, **rest) if dtypes or rest else x


class PretendCuda(TorchDispatchMode):
    """`waits`, `copies` (to the device, without waiting) and `kernels` since the last `reset`."""

    def __init__(self, values: bool = False) -> None:
        super().__init__()
        self.fake = None if values else FakeTensorMode(allow_non_fake_inputs=True)
        self.reset()

    def reset(self) -> None:
        self.waits: list[Event] = []
        self.copies: list[Event] = []
        self.kernels: Counter[str] = Counter()

    def __enter__(self):
        self._patched = [
            (torch.cuda, "_lazy_init", torch.cuda._lazy_init),
            (torch.cuda, "get_rng_state", torch.cuda.get_rng_state),
            (torch.cuda, "set_rng_state", torch.cuda.set_rng_state),
            (torch.Tensor, "pin_memory", torch.Tensor.pin_memory),
        ]
        torch.cuda.get_rng_state = lambda device=None: torch.empty(0)
        torch.cuda.set_rng_state = lambda state, device=None: None
        torch.cuda._lazy_init = lambda: None
        torch.Tensor.pin_memory = _pin  # in every thread, unlike a mode
        torch.__future__.set_overwrite_module_params_on_conversion(True)
        self._methods = _Methods()
        self._methods.__enter__()
        return super().__enter__()

    def __exit__(self, *error):
        for owner, name, value in self._patched:
            setattr(owner, name, value)
        torch.__future__.set_overwrite_module_params_on_conversion(False)
        self._methods.__exit__(*error)
        return super().__exit__(*error)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
        gpu = [x for x in tensors if isinstance(x, GpuTensor)]
        cpu = [x for x in tensors if not isinstance(x, GpuTensor)]
        device = torch.device(kwargs["device"]) if kwargs.get("device") is not None else None
        name = func._schema.name.removeprefix("aten::")
        if not gpu and (device is None or device.type != "cuda"):
            return func(*args, **kwargs)
        if name == "_local_scalar_dense":
            self._wait("item")
            return self._value(gpu[0]).item()
        if name == "_to_copy" and device is not None and device.type == "cpu":
            self._wait("copy to the host", args[0])
            return self._value(args[0]).to(kwargs.get("dtype") or args[0].dtype)
        if name == "_to_copy" and not gpu:
            return self._upload(args[0], **kwargs)
        if name == "copy_" and cpu:
            if isinstance(args[1], GpuTensor):
                self._wait("copy to the host", args[1])
                return args[0].copy_(self._value(args[1]))
            args, cpu = (args[0], self._upload(args[1]), *args[2:]), []
        if name in _INDEXING:
            args, cpu = self._index(args)
        if name in _SHAPE_FROM_VALUES:
            self._wait(name)
            if self.fake:  # of a mask without values: all true
                return self._wrap_value(torch.arange(gpu[0].numel())[:, None])
        if any(x.dim() for x in cpu):
            raise RuntimeError(f"{name}: tensors on cuda:0 and on the CPU, at {_where()}")
        if device is not None:
            kwargs["device"] = CPU
        out = self._compute(func, args, kwargs)
        if not func.is_view and name not in _NO_KERNEL:
            self.kernels[name] += 1
        return return_and_correct_aliasing(func, args, kwargs, out) if gpu else out

    def _compute(self, func, args, kwargs):
        args, kwargs = tree_map(
            lambda x: x.inner if isinstance(x, GpuTensor) else x, (args, kwargs)
        )
        if self.fake:
            with self.fake:
                out = func(*args, **kwargs)
        else:
            out = func(*args, **kwargs)
        return tree_map(lambda x: GpuTensor(x) if isinstance(x, torch.Tensor) else x, out)

    def _index(self, args):
        """Arguments of an indexing operator, and what of them must not lie on the CPU."""
        for index in (index for index in args[1] if index is not None):
            if not isinstance(index, GpuTensor):
                self._wait("CPU index into a CUDA tensor", index)
            if index.dtype is torch.bool:
                self._wait("boolean mask")
        if self.fake:  # of a mask without values: all true
            indices = [
                index
                if index is None or index.dtype is not torch.bool
                else self._wrap_value(torch.arange(index.numel()))
                for index in args[1]
            ]
            args = (args[0], indices, *args[2:])
        rest = [x for x in tree_leaves((args[0], args[2:])) if isinstance(x, torch.Tensor)]
        return args, [x for x in rest if not isinstance(x, GpuTensor)]

    def _upload(self, source, dtype=None, memory_format=None, non_blocking=False, **_):
        pinned = getattr(source, "pretended_pin", False)
        event = Event(f"{'pinned' if pinned else 'pageable'} copy to the device", _where())
        (self.copies if non_blocking and pinned else self.waits).append(
            event._replace(nbytes=source.nbytes)
        )
        source = source.to(dtype or source.dtype)
        if memory_format not in (None, torch.preserve_format):
            source = source.contiguous(memory_format=memory_format)
        return self._wrap_value(source)

    def _wrap_value(self, real):
        real = real.detach()
        gpu = GpuTensor(self.fake.from_tensor(real) if self.fake else real.clone())
        gpu.uploaded = real  # what comes back if it is copied back unchanged
        return gpu

    def _value(self, x):
        if not self.fake:
            return x.inner.clone()
        return getattr(x, "uploaded", torch.ones(x.shape, dtype=x.dtype)).clone()

    def _wait(self, what, tensor=None):
        self.waits.append(Event(what, _where(), 0 if tensor is None else tensor.nbytes))


def _pin(tensor):
    pinned = tensor.clone()
    pinned.pretended_pin = True
    return pinned


def _where() -> str:
    """The innermost line of tnfdt on the stack."""
    frame = sys._getframe(1)
    while frame:
        name = frame.f_code.co_filename
        if name.startswith(_PACKAGE):
            return f"{name.removeprefix(_PACKAGE)[1:]}:{frame.f_lineno}"
        frame = frame.f_back
    return "elsewhere"
