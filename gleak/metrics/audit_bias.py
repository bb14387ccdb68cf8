"""Classifiers of which one bias stands out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.metrics.audit import AuditSpec, Finding
from gleak.metrics.base import MetricUnavailable

if TYPE_CHECKING:
    from gleak.metrics.audit import Broadcast, Layer

FEWEST_BIASES = 5
MOST = 0.75


@register("audit_bias")
class AuditBias(AuditSpec):
    """Largest distance of the classifier's biases from their median, in units of their spread.

    The spread is the distance that three biases of four keep, or the norm of the longest row of
    weights where that is more: a bias that shifts a logit further than features can. Those of
    hidden layers are not judged: where weight decay shrinks the weights, a few biases are left. The
    classifier is the last dense layer with an output for each class; parameters alone do not tell
    in which order layers run. Weights that no sample reaches do not count, unless none is reached.
    Fewer than 5 classes say nothing.
    """

    limit: float = parameter(6.0, "above which it alarms", source="ours: above honest models", gt=0)

    def examine(self, broadcast: Broadcast) -> list[Finding]:
        """See `AuditSpec.examine`.

        Raises:
            MetricUnavailable: no layer is a classifier with biases, or it has few classes.
        """
        layers, classes = broadcast.layers, broadcast.model.classes
        heads = [each for each in layers if each.dense and len(each.weights) == classes]
        biased = [(each, each.biases) for each in heads if each.biases is not None]
        if not biased:
            raise MetricUnavailable(f"no dense layer with {classes} outputs has a bias")
        if classes < FEWEST_BIASES:
            raise MetricUnavailable(f"it needs {FEWEST_BIASES} classes or more")
        return [_examine(*biased[-1])]


def _examine(layer: Layer, biases: NDArray) -> Finding:
    distances = np.abs(biases - np.median(biases))
    weights = layer.passed if layer.passed.size else layer.weights
    longest = float(np.linalg.norm(weights, axis=1).max())
    spread = max(float(np.quantile(distances, MOST)), longest)
    at = int(distances.argmax())
    statistic = float(distances[at]) / spread if spread else 0.0
    return Finding(layer.name, statistic, f"bias {at} is {biases[at]:.3g}, the spread {spread:.3g}")
