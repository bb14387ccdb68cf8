"""Layers in which some weights are far smaller than the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gleak.metrics.audit import AuditSpec, Finding
from gleak.registry import register
from gleak.spec import knob

if TYPE_CHECKING:
    from gleak.metrics.audit import Broadcast, Layer

NEGLIGIBLE = 1e-3
FEWEST_WEIGHTS = 1000


@register("audit_negligible")
class AuditNegligible(AuditSpec):
    """Largest share of a layer's weights below a thousandth of the layer's median magnitude.

    Of values drawn from any smooth density about one in two thousand is that close to zero. Noise
    in place of zeros is found as long as it is small enough to keep what passes it undisturbed.
    Layers of fewer than 1,000 weights say nothing.
    """

    limit: float = knob(
        0.01, "share above which it alarms", source="ours: above honest models", gt=0
    )

    def examine(self, broadcast: Broadcast) -> list[Finding]:
        """See `AuditSpec.examine`."""
        large = [layer for layer in broadcast.layers if layer.weights.size >= FEWEST_WEIGHTS]
        return [_examine(layer) for layer in large]


def _examine(layer: Layer) -> Finding:
    bound, size = NEGLIGIBLE * layer.magnitude, layer.weights.size
    found = sum(int(np.count_nonzero(np.abs(block) <= bound)) for block in layer.blocks())
    return Finding(
        layer.name, found / size, f"{found} of {size} weights are below a thousandth of the median"
    )
