"""Progress of a long job: one tqdm line in a terminal, sparse plain lines in a log."""

from __future__ import annotations

import sys
import time
from typing import Any

from tqdm import tqdm

_LOG_SECONDS = 30.0


class Progress:
    """Counts steps up to `total`; `note` values stand behind the bar or the line."""

    def __init__(self, name: str, total: int, done: int = 0, *, quiet: bool = False) -> None:
        terminal, self._quiet = sys.stderr.isatty() and not quiet, quiet
        self._bar = tqdm(total=total, initial=done, desc=name, disable=not terminal)
        self._name, self._total, self._done, self._first = name, total, done, done
        self._terminal, self._start = terminal, time.monotonic()
        self._printed = self._start

    def advance(self, steps: int = 1, **note: Any) -> None:
        self._done += steps
        if self._terminal:
            if note:
                self._bar.set_postfix(note, refresh=False)
            self._bar.update(steps)
        elif time.monotonic() - self._printed > _LOG_SECONDS:
            self.line(**note)

    def line(self, **note: Any) -> None:
        """Print one plain line now (logs only)."""
        if self._terminal or self._quiet:
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
