"""Tensor Normalization and Full Distribution Training, reproduced.

The names below are imported on first use: `import tnfdt` alone does not import torch.
"""

from __future__ import annotations

import sys
from importlib import import_module, metadata
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tnfdt.attack import Trajectory, pgd_trajectory, robust_accuracy
    from tnfdt.full_distribution import Blend, FullDistribution, harmonic_factors
    from tnfdt.losses import multi_class_log_loss, multi_label_log_loss, soft_cross_entropy
    from tnfdt.models import create_model
    from tnfdt.tensor_norm import ReLUTensorNorm, insert_tensor_norm, set_backward, tensor_norm

__all__ = [
    "Blend",
    "FullDistribution",
    "ReLUTensorNorm",
    "Trajectory",
    "create_model",
    "harmonic_factors",
    "insert_tensor_norm",
    "multi_class_log_loss",
    "multi_label_log_loss",
    "pgd_trajectory",
    "robust_accuracy",
    "set_backward",
    "soft_cross_entropy",
    "tensor_norm",
]

_MODULES = {
    "Blend": "full_distribution",
    "FullDistribution": "full_distribution",
    "ReLUTensorNorm": "tensor_norm",
    "Trajectory": "attack",
    "create_model": "models",
    "harmonic_factors": "full_distribution",
    "insert_tensor_norm": "tensor_norm",
    "multi_class_log_loss": "losses",
    "multi_label_log_loss": "losses",
    "pgd_trajectory": "attack",
    "robust_accuracy": "attack",
    "set_backward": "tensor_norm",
    "soft_cross_entropy": "losses",
    "tensor_norm": "tensor_norm",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return metadata.version("tnfdt")
    if name not in _MODULES:
        raise AttributeError(f"module 'tnfdt' has no attribute {name!r}")
    return getattr(import_module(f"tnfdt.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])


class _Package(ModuleType):
    """Importing the submodule `tensor_norm` must not hide the function of the same name."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "tensor_norm" and isinstance(value, ModuleType):
            value = value.tensor_norm
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
