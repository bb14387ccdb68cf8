"""Layers whose neurons are left a single weight."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gleak.metrics.audit import AuditSpec, Finding
from gleak.metrics.judged import in_use
from gleak.registry import register
from gleak.spec import knob

if TYPE_CHECKING:
    from gleak.metrics.audit import Broadcast, Layer

FEWEST_VALUES = 16


@register("audit_zeros")
class AuditZeros(AuditSpec):
    """Largest share of a layer's rows or columns of which all weights but one are exactly zero.

    The paper's own test counts zeros and alarms at a half; pruned networks have more than that.
    Theirs are scattered, and those of naive crafting leave each path one weight. So lines are
    counted among those with a weight of a tenth of the layer's largest or more. Crafting that puts
    small noise where zeros would be passes; see `gleak.metrics.audit_columns`. Lines of fewer than
    16 values say nothing.
    """

    source = "MKOR section 2: whether the majority of weights are 0 in each layer"

    limit: float = knob(0.5, "share above which it alarms", source="MKOR section 2", gt=0)

    def examine(self, broadcast: Broadcast) -> list[Finding]:
        """See `AuditSpec.examine`."""
        return [finding for layer in broadcast.layers for finding in _examine(layer)]


def _examine(layer: Layer) -> list[Finding]:
    findings = []
    for side, lines in {"rows": layer.passed, "columns": layer.passed.T}.items():
        if lines.shape[1] >= FEWEST_VALUES:
            filled = np.count_nonzero(lines, axis=1)[in_use(lines)]
            single = int(np.count_nonzero(filled == 1))
            text = f"{single} of {len(filled)} {side} have one weight, all others are zero"
            findings.append(Finding(layer.name, single / max(1, len(filled)), text))
    return findings
