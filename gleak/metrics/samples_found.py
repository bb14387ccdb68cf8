"""Samples that an attack says it found."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from gleak.core.registry import register
from gleak.metrics.base import MetricSpec

if TYPE_CHECKING:
    from gleak.metrics.base import Comparison


@register("samples_found")
class SamplesFound(MetricSpec):
    """Share of a victim's batch that the attack found as samples of their own, and says so.

    Means of several samples do not count (``averaged_count`` of
    `gleak.artifacts.reconstruction.Reconstruction` is 1 for those that do), nor, where it says
    which label each has, samples of labels that the batch does not hold exactly once. How alike
    they are is for the metrics of samples to say.
    """

    per: ClassVar[Literal["sample", "victim"]] = "victim"
    better: ClassVar[Literal["higher", "lower"]] = "higher"

    def applies(self, comparison: Comparison) -> bool:
        """Where an attack says of how many true samples each that it found is the mean."""
        found = comparison.reconstruction
        return (
            super().applies(comparison) and found is not None and found.averaged_count is not None
        )

    def measure(self, comparison: Comparison) -> np.ndarray:
        """Shape (V), in [0, 1]."""
        found = comparison.reconstruction
        assert found is not None and found.averaged_count is not None
        alone = found.averaged_count == 1
        if found.paired:
            held = (found.labels[:, :, None] == comparison.truth_labels[:, None]).sum(2)
            alone = alone & (held == 1)
        return np.asarray(alone.sum(1) / comparison.truth_labels.shape[1])
