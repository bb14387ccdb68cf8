"""Filters that a single weight makes up."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from typing_extensions import override

from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.metrics.audit import AuditSpec, Finding
from gleak.metrics.judged import concentration, row_blocks

if TYPE_CHECKING:
    from gleak.metrics.audit import Broadcast, Layer

EFFECTIVE = 3.0
FEWEST_VALUES = 32
BY_CHANCE = 1


@register("audit_outliers")
class AuditOutliers(AuditSpec):
    """Largest share of a convolution's filters that a single weight makes up.

    One-hot kernels that copy an image have one weight of 1 among many that are a hundredth: the
    effective number of weights of such a filter, sum(w^2)^2 / sum(w^4), is below 3, and that of
    filters that were learnt from 4 upwards, whatever their size. One filter of a layer may be so by
    chance. Filters with fewer than 32 weights that are not zero say nothing.
    """

    limit: float = parameter(
        0.01, "share above which it alarms", source="ours: above honest models", gt=0
    )

    @override
    def examine(self, broadcast: Broadcast) -> list[Finding]:
        convolutions = [layer for layer in broadcast.layers if not layer.dense]
        return [examine_layer(each) for each in convolutions if each.passed.size]


def examine_layer(layer: Layer) -> Finding:
    """The share of a convolution's filters."""
    weights = layer.passed[layer.used[0]]
    rows, _ = concentration(weights[some].astype(float) for some in row_blocks(weights))
    outliers = (rows.filled >= FEWEST_VALUES) & (rows.effective < EFFECTIVE)
    found, count = int(np.count_nonzero(outliers)), len(layer.passed)
    text = f"{found} of {count} filters are made up by one weight"
    return Finding(layer.name, max(0, found - BY_CHANCE) / count, text)
