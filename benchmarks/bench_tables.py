"""Tables, claims and figures of the paper's size: 72 cells, 288 attacks of 10,000 images."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.ratios import Row
from tests import synthetic
from tnfdt.study.study import load_study

IMAGES = 10_000
SECONDS, GIBIBYTES = 60, 2

# A process of its own, so that its memory is that of stage 4 alone. It reads its own VmHWM: what
# wait4 reports of a child also counts the process that started it.
RUN = """
import sys
from pathlib import Path
from tnfdt.tables import stage as stage_tables
from tnfdt.study.machine import load_machine
from tnfdt.study.study import load_study
stage_tables.run(load_study("paper"), Path(sys.argv[1]), load_machine(), ("tables", "figures"))
print(next(x.split()[1] for x in Path("/proc/self/status").open() if x.startswith("VmHWM")))
"""


def main() -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        synthetic.write(load_study("paper"), Path(folder), synthetic.World(images=IMAGES))
        seconds, gibibytes = _measured([sys.executable, "-c", RUN, folder])
    what = "tables, claims and figures of 288 attacks"
    return [
        Row.at_most(f"{what}, seconds", seconds, SECONDS),
        Row.at_most(f"{what}, GiB at the peak", gibibytes, GIBIBYTES),
    ]


def _measured(command: list[str]) -> tuple[float, float]:
    """Seconds and peak GiB of one process, which must succeed."""
    start = time.perf_counter()
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return time.perf_counter() - start, int(done.stdout) / 2**20
