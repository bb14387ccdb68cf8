"""The attack's own objective."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from gleak.metrics.base import MetricSpec
from gleak.metrics.records import search_record
from gleak.registry import register

if TYPE_CHECKING:
    import numpy as np

    from gleak.metrics.base import Comparison


@register("objective")
class Objective(MetricSpec):
    """Value of the attack's objective at the reconstruction: gradient distance plus priors.

    Its scale is the attack's; values of different attacks are not comparable.
    """

    per: ClassVar[Literal["sample", "victim"]] = "victim"

    def measure(self, comparison: Comparison) -> np.ndarray:
        """Shape (V).

        Raises:
            MetricUnavailable: the attack does not iterate or keeps no such record.
        """
        return search_record(comparison, "objective")
