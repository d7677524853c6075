"""MLflow's page on an embedded store, served as `tnfdt ui` does, opened in headless Chromium.

python -m tests.integration.ui_screenshot results/mlflow.db page.png [tnfdt/STUDY]
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tnfdt.tracking.sqlite_store import links, server_command, server_settings

CHROMIUM = "chromium"
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--hide-scrollbars", "--window-size=2000,800", "--virtual-time-budget=20000",
)  # fmt: skip


@contextmanager
def serve(database: Path, port: int) -> Iterator[None]:
    """A real MLflow server on loopback; it is killed with all its processes in the end."""
    process = subprocess.Popen(
        server_command(database, port),
        env={**os.environ, **server_settings()},
        cwd=database.parent,
        process_group=0,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _wait(port)
        yield
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _wait(port: int, seconds: float = 120) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise TimeoutError("the MLflow server did not start")


def open_page(link: str, picture: Path) -> str:
    """Take a picture of a page and return its HTML as rendered."""
    with tempfile.TemporaryDirectory() as profile:
        command = [CHROMIUM, *FLAGS, f"--user-data-dir={profile}", f"--screenshot={picture}"]
        done = subprocess.run(
            [*command, "--dump-dom", link], capture_output=True, text=True, timeout=120, check=True
        )
    return done.stdout


def main(database: str, picture: str, study: str = "", port: int = 5055) -> None:
    path = Path(database).absolute()
    pages = dict(links(path, port))
    with serve(path, port):
        open_page(pages[study or next(iter(pages))], Path(picture))


if __name__ == "__main__":
    main(*sys.argv[1:])
