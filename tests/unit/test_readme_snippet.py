"""The README's lines for somebody's own training loop are run as they stand."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn

import tnfdt
from tnfdt import ReLUTensorNorm

HEADING = "## TN and FDT in your own code"


def snippet() -> str:
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    assert f"\n{HEADING}\n" in readme, f"README.md has no section {HEADING!r}"
    section = readme.split(f"\n{HEADING}\n", 1)[1].split("\n## ", 1)[0]
    block = re.search(r"```python\n(.*?)```", section, re.DOTALL)
    assert block, f"README.md: no python block under {HEADING!r}"
    return block[1]


def test_the_lines_of_the_readme_train_a_model() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 10)
    )
    before = [parameter.clone() for parameter in model.parameters()]
    namespace: dict[str, Any] = {
        "torch": torch,
        "model": model,
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
        "images": torch.randint(256, (40, 3, 8, 8), dtype=torch.uint8),
        "labels": torch.arange(40) % 10,
        "num_classes": 10,
        "steps": 2,
    }
    exec(snippet(), namespace)
    assert any(isinstance(module, ReLUTensorNorm) for module in model.modules())
    moved = zip(before, model.parameters(), strict=True)
    assert all(not torch.equal(old, new) for old, new in moved)


def test_every_public_name_can_be_imported() -> None:
    assert all(callable(getattr(tnfdt, name)) for name in tnfdt.__all__)
    assert re.fullmatch(r"\d+\.\d+.*", tnfdt.__version__)
    assert set(tnfdt.__all__) <= set(dir(tnfdt))


def test_importing_the_package_does_not_import_torch() -> None:
    code = "import sys, tnfdt; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
