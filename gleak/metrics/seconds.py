"""Time an attack takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from gleak.core.registry import register
from gleak.metrics.base import MetricSpec
from gleak.metrics.records import job_record

if TYPE_CHECKING:
    from gleak.metrics.base import Comparison


@register("seconds")
class Seconds(MetricSpec):
    """CPU seconds of the attack's job (``cpu_seconds`` in its provenance) over its victims.

    Victims run as one batch, so each is given an equal share. CPU time of all threads, not wall
    time: it depends less on what else the machine is doing.
    """

    per: ClassVar[Literal["sample", "victim"]] = "victim"
    unit: ClassVar[str] = "CPU s"

    def measure(self, comparison: Comparison) -> np.ndarray:
        """Shape (V), in CPU seconds, the same for all victims.

        Raises:
            MetricUnavailable: the job left no record of it.
        """
        share = job_record(comparison, "cpu_seconds") / comparison.victims
        return np.full(comparison.victims, share)
