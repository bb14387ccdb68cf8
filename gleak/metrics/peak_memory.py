"""Memory an attack takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from gleak.core.registry import register
from gleak.metrics.base import MetricSpec
from gleak.metrics.records import job_record

if TYPE_CHECKING:
    from gleak.metrics.base import Comparison


@register("peak_memory")
class PeakMemory(MetricSpec):
    """Largest memory the attack's job held (``peak_memory_mb`` in its provenance).

    The whole job's, all victims together: it cannot be told apart, so each victim bears it.
    """

    per: ClassVar[Literal["sample", "victim"]] = "victim"
    unit: ClassVar[str] = "MB"

    def measure(self, comparison: Comparison) -> np.ndarray:
        """Shape (V), in megabytes, the same for all victims.

        Raises:
            MetricUnavailable: the job left no record of it.
        """
        return np.full(comparison.victims, job_record(comparison, "peak_memory_mb"))
