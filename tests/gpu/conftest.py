"""What only a real GPU can show: skipped, with the reason, where there is none."""

from pathlib import Path

import pytest
import torch

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
def no_sync_errors():
    """Waiting is an error only inside the test that asks for it."""
    yield
    if torch.cuda.is_available():
        torch.cuda.set_sync_debug_mode("default")
