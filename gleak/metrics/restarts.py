"""Restarts of the search."""

from __future__ import annotations

from typing import ClassVar

from gleak.core.registry import register
from gleak.metrics.records import SearchMetric


@register("restarts")
class Restarts(SearchMetric):
    """How often a victim's search diverged or stalled and began afresh."""

    unit: ClassVar[str] = "restarts"
