"""Samples that an attack says it found."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from gleak.metrics.base import MetricSpec
from gleak.registry import register

if TYPE_CHECKING:
    from gleak.metrics.base import Comparison


@register("samples_found")
class SamplesFound(MetricSpec):
    """Share of a victim's batch that the attack says it found, each as a sample of its own.

    Means of several samples do not count (``behind`` of
    `gleak.artifacts.reconstruction.Reconstruction` is 1 for those that do). Whether the attack is
    right is for the metrics of samples to say.
    """

    per: ClassVar[Literal["sample", "victim"]] = "victim"
    better: ClassVar[Literal["higher", "lower"]] = "higher"

    def applies(self, comparison: Comparison) -> bool:
        """Where an attack says of how many true samples each that it found is the mean."""
        found = comparison.reconstruction
        return super().applies(comparison) and found is not None and found.behind is not None

    def measure(self, comparison: Comparison) -> np.ndarray:
        """Shape (V), in [0, 1]."""
        found = comparison.reconstruction
        assert found is not None and found.behind is not None
        return np.asarray((found.behind == 1).sum(1) / comparison.truth_labels.shape[1])
