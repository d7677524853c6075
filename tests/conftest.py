"""Tests that need a system package say so; without it they are skipped, and in CI they fail."""

import os

import pytest

from tests import packages


def pytest_configure(config: pytest.Config) -> None:
    names = ", ".join(packages.COMPONENTS)
    config.addinivalue_line("markers", f"needs(name): a component of the system: {names}")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    absent = [
        name
        for marker in item.iter_markers("needs")
        for name in marker.args
        if not packages.is_here(name)
    ]
    if not absent:
        return
    item.user_properties.append(("needs", absent))
    reason = f"{', '.join(absent)} is not installed: {packages.command(absent)}"
    if os.environ.get("CI") == "true":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


@pytest.hookimpl(trylast=True)  # after the durations, so that a green run ends with it
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    skipped = terminalreporter.stats.get("skipped", [])
    lacks = [dict(report.user_properties).get("needs", []) for report in skipped]
    absent = [name for name in packages.COMPONENTS if any(name in names for names in lacks)]
    if absent:
        count = sum(map(bool, lacks))
        tests = "1 test was" if count == 1 else f"{count} tests were"
        line = f"{tests} skipped because {', '.join(absent)} is missing; to run them too:"
        terminalreporter.write_line(f"{line} {packages.command(absent)}", yellow=True)


@pytest.fixture(scope="module")
def one_thread():
    """Sums of floats, and so bytes, depend on the number of threads."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
