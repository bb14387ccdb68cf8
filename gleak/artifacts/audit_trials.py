"""Trials of an audit by canaries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from gleak.artifacts.schema import array
from gleak.artifacts.store import Artifact


@dataclass(frozen=True, kw_only=True)
class AuditTrials(Artifact):
    """Scores of a test that tells whether canaries took part, and whether they did.

    Args:
        score: one for each canary, the larger, the more the test believes in it; Shape (T).
        present: True where the canary took part, False where its opposite, or another sample, did;
            Shape (T).
        noise_multipliers: standard deviation of the noise of each local step of one client, in
            units of the sensitivity; Shape (S), None for defences of updates.
    """

    format: ClassVar[str] = "gleak/audit"

    score: np.ndarray = array("trial", "log likelihood ratio, up to a factor")
    present: np.ndarray = array("trial", "yes or no", "bool")
    noise_multipliers: np.ndarray | None = array("step", "sensitivity", optional=True)
