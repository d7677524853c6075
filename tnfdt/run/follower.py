"""The one process that follows a Snakemake run for MLflow, started and ended with it.

It is `tnfdt track --follow`, which ends by itself when the Snakemake that started it is gone.
"""

from __future__ import annotations

import logging
import os
import subprocess

log = logging.getLogger(__name__)
_started: list[subprocess.Popen[str]] = []


def start() -> None:
    """Follow the run from now on; a run whose follower cannot start goes on without."""
    try:
        process = subprocess.Popen(
            ["tnfdt", "track", "--follow"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
            start_new_session=True,  # Ctrl-C is Snakemake's, which then ends this one
        )
    except OSError as error:
        log.warning("tracking: %s; `tnfdt track` sends the run later", error)
    else:
        _started.append(process)


def finish() -> str:
    """Let the follower bring MLflow in line with everything, and say what it says. One that was
    killed, or that never was, is made up for."""
    process = _started.pop() if _started else None
    if process is not None and process.poll() is None:
        process.terminate()
        said, _ = process.communicate()
        if process.returncode in (0, 2):  # done, or the store's failure is reported
            return said.strip()
    tracked = subprocess.run(["tnfdt", "track"], capture_output=True, text=True)
    return tracked.stdout.strip() or tracked.stderr.strip()
