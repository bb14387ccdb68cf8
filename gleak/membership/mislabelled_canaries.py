"""Canaries with a wrong label."""

from __future__ import annotations

import numpy as np

from gleak.core.registry import register
from gleak.membership.data_canaries import SampleCanarySpec


@register("mislabelled_canaries")
class MislabelledCanaries(SampleCanarySpec):
    """Samples with a wrong label: on a trained network their gradients are unusually long."""

    source = "Nasr et al. 2021; Steinke et al. 2023"

    def canary_labels(
        self, labels: np.ndarray, classes: int, random: np.random.Generator
    ) -> np.ndarray:
        return (labels + random.integers(1, max(classes, 2), len(labels))) % classes
