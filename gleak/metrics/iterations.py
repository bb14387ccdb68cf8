"""Iterations of the search."""

from __future__ import annotations

from typing import ClassVar

from gleak.core.registry import register
from gleak.metrics.records import SearchMetric


@register("iterations")
class Iterations(SearchMetric):
    """Iterations spent on a victim, those of its restarts included."""

    unit: ClassVar[str] = "iterations"
