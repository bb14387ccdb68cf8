"""Samples that are alone in their class."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from gleak.core.registry import register
from gleak.metrics.base import MetricSpec

if TYPE_CHECKING:
    from gleak.metrics.base import Comparison


@register("unique_samples")
class UniqueSamples(MetricSpec):
    """How many samples of a victim's batch are the only ones of their class.

    An attack that tells classes apart, and not samples, can find these alone. Its expectation over
    batches of K samples whose classes n have the probabilities p_n is K sum_n p_n (1 - p_n)^(K-1):
    36.97 of 100 samples of 100 equally frequent classes. It is said of the batch, whatever an
    attack makes of it.
    """

    source = "MKOR Eq. 3"
    per: ClassVar[Literal["sample", "victim"]] = "victim"
    unit: ClassVar[str] = "samples"
    better: ClassVar[Literal["higher", "lower"]] = "higher"

    def measure(self, comparison: Comparison) -> np.ndarray:
        """Shape (V), whole numbers."""
        labels = comparison.truth_labels
        alike = (labels[:, :, None] == labels[:, None, :]).sum(2)
        return np.asarray((alike == 1).sum(1), dtype=np.float64)
