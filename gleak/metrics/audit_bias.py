"""Layers in which one bias stands out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gleak.metrics.audit import AuditSpec, Finding, root_mean_square
from gleak.registry import register
from gleak.spec import knob

if TYPE_CHECKING:
    from gleak.metrics.audit import Broadcast, Layer

FEWEST_BIASES = 5


@register("audit_bias")
class AuditBias(AuditSpec):
    """Largest distance of a layer's biases from their median, in units of their spread.

    The spread is the median distance from the median, or the root mean square of the layer's
    weights where that is more: fresh biases may all be zero. Layers of fewer than 5 biases say
    nothing.
    """

    limit: float = knob(25.0, "above which it alarms", source="ours: above honest models", gt=0)

    def examine(self, broadcast: Broadcast) -> list[Finding]:
        """See `AuditSpec.examine`."""
        return [
            _examine(layer, layer.biases)
            for layer in broadcast.layers
            if layer.biases is not None and layer.biases.size >= FEWEST_BIASES
        ]


def _examine(layer: Layer, biases: NDArray) -> Finding:
    distances = np.abs(biases - np.median(biases))
    spread = max(float(np.median(distances)), root_mean_square(layer.weights))
    at = int(distances.argmax())
    statistic = float(distances[at]) / spread if spread else 0.0
    return Finding(layer.name, statistic, f"bias {at} is {biases[at]:.3g}, the spread {spread:.3g}")
