"""Tensor Normalization and Full Distribution Training, reproduced.

The names below need torch and numpy, `create_model` also timm and `pgd_trajectory` foolbox. They
are imported on first use: `import tnfdt` alone does not import torch.
"""

from __future__ import annotations

from importlib import import_module, metadata
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tnfdt.attack.trajectory import Trajectory, pgd_trajectory, robust_accuracy
    from tnfdt.core.full_distribution import Blend, FullDistribution, harmonic_factors
    from tnfdt.core.losses import multi_class_log_loss, multi_label_log_loss, soft_cross_entropy
    from tnfdt.core.tensor_norm import ReLUTensorNorm, insert_tensor_norm, set_backward, tensor_norm
    from tnfdt.models import create_model

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

_NAMES = {
    "attack.trajectory": ("Trajectory", "pgd_trajectory", "robust_accuracy"),
    "core.full_distribution": ("Blend", "FullDistribution", "harmonic_factors"),
    "core.losses": ("multi_class_log_loss", "multi_label_log_loss", "soft_cross_entropy"),
    "core.tensor_norm": ("ReLUTensorNorm", "insert_tensor_norm", "set_backward", "tensor_norm"),
    "models": ("create_model",),
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return metadata.version("tnfdt")
    if name not in _MODULES:
        raise AttributeError(f"module 'tnfdt' has no attribute {name!r}")
    return getattr(import_module(f"tnfdt.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
