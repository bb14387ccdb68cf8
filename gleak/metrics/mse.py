"""Mean squared error."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gleak.core.registry import register
from gleak.metrics.base import MetricSpec

if TYPE_CHECKING:
    from gleak.metrics.base import Comparison


@register("mse")
class Mse(MetricSpec):
    """Squared difference to the truth, mean over a sample's features (pixels and channels)."""

    def measure(self, comparison: Comparison) -> np.ndarray:
        """Shape (V, N), in double precision; inputs lie in [0, 1], so values do too."""
        error = comparison.estimate.astype(np.float64) - comparison.truth
        return np.asarray((error**2).mean(axis=tuple(range(2, error.ndim))))
