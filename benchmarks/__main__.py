"""`make bench`: what is fast here, as ratios measured side by side in one run.

A name runs one of them: `python -m benchmarks attack`. Each runs in a process of its own, so that
none sees the memory, the threads or the caches of another. The last table is the one that
docs/speed.md explains.
"""

from __future__ import annotations

import os
import platform
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import torch

from benchmarks.headlines import table
from benchmarks.ratios import Row, measured


def main(names: list[str]) -> int:
    """Run the benchmarks and print Markdown tables; exit 1 if a target is missed."""
    known = sorted(path.stem[6:] for path in Path(__file__).parent.glob("bench_*.py"))
    unknown = set(names) - set(known)
    if unknown:
        print(f"no benchmark {', '.join(unknown)}; there are {', '.join(known)}", file=sys.stderr)
        return 2
    load = os.getloadavg()[0]
    print(f"torch {torch.__version__}, {platform.machine()}, load {load:.1f} at the start\n")
    print("| what | measured | target | |\n|---|---|---|---|")
    rows = [row for name in names or known for row in _printed(name)]
    print(f"\n{table(rows)}")
    return int(not all(row.ok for row in rows))


def _printed(name: str) -> list[Row]:
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        rows = pool.submit(measured, name).result()
    for row in rows:
        print(f"| {row.name} | {row.ratio:.3g} | {row.target} | {'ok' if row.ok else 'missed'} |")
    sys.stdout.flush()
    return rows


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
