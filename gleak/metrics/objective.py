"""The attack's own objective."""

from __future__ import annotations

from gleak.core.registry import register
from gleak.metrics.records import SearchMetric


@register("objective")
class Objective(SearchMetric):
    """Value of the attack's objective at the reconstruction: gradient distance plus priors.

    Its scale is the attack's; values of different attacks are not comparable.
    """
