"""Progress of a long job: one tqdm line in a terminal, sparse plain lines in a log."""

from __future__ import annotations

import sys
import time
from typing import Any

from tqdm import tqdm

_LOG_SECONDS = 30.0


class Progress:
    """Counts images up to `total`."""

    def __init__(self, name: str, total: int, done: int = 0) -> None:
        self._terminal = sys.stderr.isatty()
        self._bar = tqdm(
            total=total,
            initial=done,
            desc=name,
            disable=not self._terminal,
            unit=" images",
            unit_scale=True,
            dynamic_ncols=True,
        )
        self._name, self._total, self._done, self._first = name, total, done, done
        self._printed = self._start = time.monotonic()

    def reach(self, done: int) -> None:
        """So many images are done now."""
        self._bar.update(done - self._done)
        self._done = done
        if not self._terminal and time.monotonic() - self._printed > _LOG_SECONDS:
            self.report()

    def report(self, **note: Any) -> None:
        """Put the values behind the bar, or print one plain line with them."""
        if self._terminal:
            self._bar.set_postfix(note)
            return
        self._printed = time.monotonic()
        elapsed = self._printed - self._start
        left = elapsed / max(self._done - self._first, 1) * (self._total - self._done)
        values = ", ".join(f"{key} {value}" for key, value in note.items())
        share = f"{100 * self._done / max(self._total, 1):.0f} %"
        text = f"{self._name}: {share}, {left:.0f} s left" + (f", {values}" if values else "")
        print(text, file=sys.stderr, flush=True)

    def close(self) -> None:
        self._bar.close()
