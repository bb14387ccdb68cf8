"""Layers in which most weights are zero."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gleak.metrics.audit import AuditSpec, Finding
from gleak.registry import register
from gleak.spec import knob

if TYPE_CHECKING:
    from gleak.metrics.audit import Broadcast


@register("audit_zeros")
class AuditZeros(AuditSpec):
    """Largest share of a layer's weights that are exactly zero: the paper's own test.

    It finds naive crafting and class fishing. Crafting that puts small noise where zeros would be
    passes; see `gleak.metrics.audit_negligible`.
    """

    source = "MKOR section 2: whether the majority of weights are 0 in each layer"

    limit: float = knob(0.5, "share above which it alarms", source="MKOR section 2", gt=0)

    def examine(self, broadcast: Broadcast) -> list[Finding]:
        """See `AuditSpec.examine`."""
        findings = []
        for layer in broadcast.layers:
            size = layer.weights.size
            found = size - int(np.count_nonzero(layer.weights))
            findings.append(
                Finding(layer.name, found / size, f"{found} of {size} weights are zero")
            )
        return findings
