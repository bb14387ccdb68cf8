"""Whether a sample was recovered."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.metrics.base import MetricSpec
from gleak.metrics.mse import Mse

if TYPE_CHECKING:
    from gleak.metrics.base import Comparison


@register("success_content")
class SuccessContent(MetricSpec):
    """1 for a sample whose mean squared error is below the threshold, else 0.

    The mean over samples is the success rate at that threshold.
    """

    better: ClassVar[Literal["higher", "lower"]] = "higher"
    unmatched: ClassVar[float] = 0.0

    threshold: float = parameter(1e-3, "mean squared error below which a sample counts", gt=0)

    def measure(self, comparison: Comparison) -> np.ndarray:
        """Shape (V, N), 0 or 1."""
        return np.asarray(Mse().measure(comparison) < self.threshold, dtype=np.float64)
