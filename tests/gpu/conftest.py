"""What only a real GPU can show: skipped, with the reason, where there is none."""

import os
from pathlib import Path

import pytest
import torch

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # before CUDA's first matrix product
HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if torch.cuda.is_available():
        return
    skip = pytest.mark.skip(reason="no CUDA device here: run `pytest tests/gpu` where there is one")
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(skip)


@pytest.fixture
def cuda() -> torch.device:
    return torch.device("cuda:0")


@pytest.fixture(autouse=True)
def as_before():
    """Waiting is an error, and arithmetic is set, only inside the test that asks for it."""
    threads, mode = torch.get_num_threads(), torch.get_deterministic_debug_mode()
    yield
    torch.set_num_threads(threads)
    torch.set_deterministic_debug_mode(mode)
    if torch.cuda.is_available():
        torch.cuda.set_sync_debug_mode("default")
