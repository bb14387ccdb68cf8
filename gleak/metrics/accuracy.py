"""Accuracy of trained models."""

from __future__ import annotations

from gleak.artifacts.model import Model
from gleak.core.registry import register
from gleak.metrics.base import SHARE, MetricUnavailable, ModelMetricSpec


@register("test_accuracy")
class TestAccuracy(ModelMetricSpec):
    """Share of test samples that the trained model classifies correctly (benign accuracy)."""

    source = "CPL Tables 7a and 8"
    better = "higher"
    limits = SHARE

    def measure(self, model: Model) -> float:
        """Return the test accuracy after the last epoch or round."""
        if not len(model.test_accuracy):
            raise MetricUnavailable("the dataset has no samples in its test split")
        return float(model.test_accuracy[-1])
