"""Evaluations of the attack's objective."""

from __future__ import annotations

from typing import ClassVar

from gleak.core.registry import register
from gleak.metrics.records import SearchMetric


@register("evaluations")
class Evaluations(SearchMetric):
    """Values-with-gradients of the attack's objective computed for a victim."""

    unit: ClassVar[str] = "evaluations"
