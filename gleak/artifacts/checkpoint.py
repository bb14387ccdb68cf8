"""``checkpoint.h5``: where a job that was broken off stood."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from gleak.artifacts.schema import arrays, attribute
from gleak.artifacts.store import Artifact


@dataclass(frozen=True, kw_only=True)
class Checkpoint(Artifact):
    """What a job has come to, stored as it is: it is read once, by the job that goes on.

    Args:
        origin: a digest of all that the job follows from; another job's is another.
        state: what one step leaves to the next, by part of the job and name.
    """

    format: ClassVar[str] = "gleak/checkpoint"
    version: ClassVar[int] = 2

    origin: str = attribute("")
    state: dict[str, np.ndarray] = arrays("...", "state", "any", finite=False, packed=False)
