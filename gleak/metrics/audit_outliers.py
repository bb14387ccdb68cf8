"""Layers of which a few weights are far larger than the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gleak.metrics.audit import AuditSpec, Finding
from gleak.registry import register
from gleak.spec import knob

if TYPE_CHECKING:
    from gleak.metrics.audit import Broadcast, Layer

FEWEST_WEIGHTS = 100


@register("audit_outliers")
class AuditOutliers(AuditSpec):
    """Largest excess kurtosis of a layer's weights: their fourth moment over what a normal's is.

    It is -1.2 of a uniform density, 0 of a normal one, and grows as layers learn. A few weights of
    1 among the many of a convolution that are a hundredth lift it into the hundreds. Layers of
    fewer than 100 weights say nothing.
    """

    limit: float = knob(20.0, "above which it alarms", source="ours: above honest models", gt=0)

    def examine(self, broadcast: Broadcast) -> list[Finding]:
        """See `AuditSpec.examine`."""
        return [
            Finding(
                layer.name, kurtosis := excess_kurtosis(layer), f"excess kurtosis {kurtosis:.3g}"
            )
            for layer in broadcast.layers
            if layer.weights.size >= FEWEST_WEIGHTS
        ]


def excess_kurtosis(layer: Layer) -> float:
    """As `scipy.stats.kurtosis`, block by block: a library's would copy the layer three times.

    Of weights that are all equal it is 0.
    """
    mean = layer.weights.mean(dtype=float)
    second = fourth = 0.0
    for block in layer.blocks():
        squares = ((block - mean) ** 2).ravel()
        second += float(squares.sum(dtype=float))
        fourth += float((squares**2).sum(dtype=float))
    return layer.weights.size * fourth / second**2 - 3 if second else 0.0
