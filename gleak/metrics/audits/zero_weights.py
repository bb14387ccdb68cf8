"""Share of weights that are zero, which MKOR's client checks."""

from __future__ import annotations

import numpy as np

from gleak.core.registry import register
from gleak.metrics.audits.base import Broadcast, ParametersMetricSpec
from gleak.metrics.base import MetricUnavailable


@register("zero_weights")
class ZeroWeights(ParametersMetricSpec):
    """Largest share of a layer's weights that are exactly zero.

    MKOR's client is suspicious of more than a half. That is no audit here and raises no alarm,
    since pruned networks have more; see `gleak.metrics.audits.single_weight_paths.AuditZeros`. All
    weights count, whether or not a sample reaches them. Biases do not.
    """

    source = "MKOR section 2: whether the majority of weights are 0 in each layer"
    unit = "share"

    def measure(self, broadcast: Broadcast) -> float:
        weights = [each for each in broadcast.model.parameters.values() if each.ndim > 1]
        shares = [1 - np.count_nonzero(each) / each.size for each in weights if each.size]
        if not shares:
            raise MetricUnavailable("there is no layer with weights")
        return max(shares)
