"""Where chance comes from: every random draw is a function of (seed, stream name).

Streams never name the method, so that methods are paired draw by draw. Randomness is drawn
on the CPU from a generator seeded anew for each step: a run can go on at any step without
stored generator states, and the draws do not depend on the device.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def derive(seed: int, stream: str) -> int:
    """A 63-bit integer from (seed, stream), by SHA-256, the same on every machine."""
    digest = hashlib.sha256(f"{seed}/{stream}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def generator(seed: int, stream: str, device: str | torch.device = "cpu") -> torch.Generator:
    """A torch generator that starts at the stream's own state."""
    import torch

    return torch.Generator(device=device).manual_seed(derive(seed, stream))
