"""Progress of a long computation: a bar on a terminal, plain lines in a log."""

from __future__ import annotations

import logging
import sys
import time
from typing import Any, Self

LINE_SECONDS = 10.0
log = logging.getLogger(__name__)


class Progress:
    """Counter of finished units of work; used as a context manager.

    On a terminal a bar is drawn; elsewhere a line is logged at most every `LINE_SECONDS` and one at
    the end, also if the work is interrupted.

    Args:
        total: minimum number of units.
        label: name of the work, at the start of every line.
    """

    def __init__(self, total: int, label: str) -> None:
        self.total, self.label, self.done = total, label, 0
        self._facts: dict[str, Any] = {}
        self._started = self._shown = time.monotonic()
        self._bar: Any = None
        if sys.stderr.isatty():
            from tqdm import tqdm

            self._bar = tqdm(total=total, desc=label)

    def advance(self, units: int = 1, **facts: Any) -> None:
        """Count units as finished; facts ("objective", say) are shown beside the count."""
        self.done += units
        if facts:
            self._facts = {
                name: f"{value:.4g}" if isinstance(value, float) else str(value)
                for name, value in facts.items()
            }
        if self._bar is not None:
            self._bar.set_postfix(self._facts, refresh=False)
            self._bar.update(units)
        elif time.monotonic() - self._shown >= LINE_SECONDS and self.done < self.total:
            self._log_line()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()
        else:
            self._log_line()

    def _log_line(self) -> None:
        self._shown = time.monotonic()
        elapsed = self._shown - self._started
        times = [f"{elapsed:.0f} s"]
        if 0 < self.done < self.total:
            times.append(f"about {elapsed * (self.total / self.done - 1):.0f} s left")
        facts = [f"{name}={value}" for name, value in self._facts.items()]
        log.info("%s: %s", self.label, ", ".join([f"{self.done}/{self.total}", *times, *facts]))
