"""Iterations of the search."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from gleak.metrics.base import MetricSpec
from gleak.metrics.records import search_record
from gleak.registry import register

if TYPE_CHECKING:
    import numpy as np

    from gleak.metrics.base import Comparison


@register("iterations")
class Iterations(MetricSpec):
    """Iterations spent on a victim, those of its restarts included."""

    per: ClassVar[Literal["sample", "victim"]] = "victim"
    unit: ClassVar[str] = "iterations"

    def measure(self, comparison: Comparison) -> np.ndarray:
        """Shape (V).

        Raises:
            MetricUnavailable: the attack does not iterate or keeps no such record.
        """
        return search_record(comparison, "iterations")
