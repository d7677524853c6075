"""`make bench`: what is fast here, as ratios measured side by side in one run.

A name runs one of them: `python -m benchmarks attack`.
"""

from __future__ import annotations

import importlib
import platform
import sys
from pathlib import Path

import torch

from benchmarks.ratios import Row


def main(names: list[str]) -> int:
    """Run the benchmarks and print one Markdown table; exit 1 if a target is missed."""
    known = sorted(path.stem[6:] for path in Path(__file__).parent.glob("bench_*.py"))
    unknown = set(names) - set(known)
    if unknown:
        print(f"no benchmark {', '.join(unknown)}; there are {', '.join(known)}", file=sys.stderr)
        return 2
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {platform.machine()}\n")
    print("| what | measured | target | |\n|---|---|---|---|")
    rows: list[Row] = []
    for name in names or known:
        for row in importlib.import_module(f"benchmarks.bench_{name}").main():
            rows.append(row)
            print(
                f"| {row.name} | {row.ratio:.3g} | {row.target} | {'ok' if row.ok else 'missed'} |"
            )
            sys.stdout.flush()
    return int(not all(row.ok for row in rows))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
