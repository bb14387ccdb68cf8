"""Whether a label was recovered."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from gleak.core.registry import register
from gleak.metrics.base import MetricSpec

if TYPE_CHECKING:
    from gleak.metrics.base import Comparison


@register("success_labels")
class SuccessLabels(MetricSpec):
    """1 for a true label that is among the reconstructed ones, counted with repeats, else 0."""

    better: ClassVar[Literal["higher", "lower"]] = "higher"
    unmatched: ClassVar[float] = 0.0

    def measure(self, comparison: Comparison) -> np.ndarray:
        """Shape (V, N), 0 or 1."""
        equal = comparison.estimate_labels == comparison.truth_labels
        return np.asarray(equal, dtype=np.float64)

    def matched(self, comparison: Comparison) -> np.ndarray:
        """Which true labels have a reconstructed one beside them; Shape (V, N)."""
        return np.asarray(comparison.estimate_labels >= 0)
