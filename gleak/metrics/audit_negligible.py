"""Layers in which some weights are far smaller than the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.metrics.audit import AuditSpec, Finding
from gleak.metrics.base import MetricUnavailable

if TYPE_CHECKING:
    from gleak.metrics.audit import Broadcast, Layer

NEGLIGIBLE = 1e-3
FAINT = 0.03
FEWEST_WEIGHTS = 1000
SAMPLED_WEIGHTS = 200_000


@register("audit_negligible")
class AuditNegligible(AuditSpec):
    """Share of a layer's weights that are noise in place of zeros, the largest of all layers.

    Counted are the weights below a thousandth of the layer's median magnitude, less those between
    a thousandth and 3% of it: of values drawn from a smooth density, or shrunk over many orders of
    magnitude, the latter are the more, and none are left; noise small enough to keep what passes
    it undisturbed leaves a gap. Zeros are not counted, and rows and columns are balanced first.
    Weights that Adam decays where no sample reaches them leave the same gap: only samples tell.
    Layers that have no influence on the logits of the samples, or of fewer than 1,000 judged
    weights, say nothing.
    """

    limit: float = parameter(
        0.01, "share above which it alarms", source="ours: above honest models", gt=0
    )

    def examine(self, broadcast: Broadcast) -> list[Finding]:
        """See `AuditSpec.examine`.

        Raises:
            MetricUnavailable: the client brings no samples.
        """
        if not broadcast.tried:
            raise MetricUnavailable(
                "it needs the client's own samples, to tell noise from what weight decay leaves; "
                "give --data"
            )
        return [
            _examine(layer)
            for layer in broadcast.layers
            if layer.reach and layer.balanced.weights.size >= FEWEST_WEIGHTS
        ]


def _examine(layer: Layer) -> Finding:
    size, typical = layer.balanced.weights.size, _median(layer)
    below = np.zeros(2, dtype=int)
    for block in layer.balanced.blocks():
        magnitudes = np.abs(block[block != 0])
        below += [np.count_nonzero(magnitudes < b * typical) for b in (NEGLIGIBLE, FAINT)]
    negligible, between = int(below[0]), int(below[1] - below[0])
    text = f"{negligible} of {size} weights are negligible, {between} small"
    return Finding(layer.name, max(0, negligible - between) / size, text)


def _median(layer: Layer) -> float:
    """Of the balanced magnitudes that are not zero, `SAMPLED_WEIGHTS` of them at most."""
    step = layer.balanced.weights.size // SAMPLED_WEIGHTS | 1
    parts = [np.abs(block.ravel()[::step]) for block in layer.balanced.blocks()]
    magnitudes = np.concatenate(parts)
    present = magnitudes[magnitudes > 0]
    return float(np.median(present)) if present.size else 0.0
