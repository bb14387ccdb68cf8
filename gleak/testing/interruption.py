"""Jobs that are asked to stop at every step."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import TypeVar
from unittest.mock import patch

from gleak.core.errors import StoppedError
from gleak.runtime.checkpointing import Journal

T = TypeVar("T")


def run_interrupted(job: Callable[[], T]) -> tuple[T, int]:
    """Run a job until it ends, asking it to stop at a later step in every attempt.

    Args:
        job: does the work inside a `Journal`; called again after each stop.

    Returns:
        Its result, and the number of times that it was stopped.
    """
    for stopped in count():
        left = [stopped]

        def due(journal: Journal, left: list[int] = left) -> bool:
            if not left[0]:
                os.kill(os.getpid(), signal.SIGTERM)
            left[0] -= 1
            return bool(journal._asked)

        with patch.object(Journal, "due", property(due)), suppress(StoppedError):
            return job(), stopped
    raise AssertionError("unreachable")
