"""Layers whose neurons are left a single weight."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gleak.metrics.audit import AuditSpec, Finding
from gleak.metrics.judged import concentration, row_blocks
from gleak.registry import register
from gleak.spec import knob

if TYPE_CHECKING:
    from gleak.metrics.audit import Broadcast, Layer

EFFECTIVE = 1.5
FEWEST_VALUES = 16


@register("audit_zeros")
class AuditZeros(AuditSpec):
    """Largest share of a layer's rows or columns in use that zeros leave a single weight.

    The paper's own test counts exact zeros and alarms at a half; pruned networks have more than
    that. Theirs are scattered, and those of naive crafting leave each path one weight: a line
    counts if most of its weights are zero and the effective number of the others,
    sum(w^2)^2 / sum(w^4), is below 1.5. Crafting that puts small noise where zeros would be passes;
    see `gleak.metrics.audit_columns`. Lines of fewer than 16 values say nothing.
    """

    source = "MKOR section 2: whether the majority of weights are 0 in each layer"

    limit: float = knob(0.5, "share above which it alarms", source="MKOR section 2", gt=0)

    def examine(self, broadcast: Broadcast) -> list[Finding]:
        """See `AuditSpec.examine`."""
        return [finding for layer in broadcast.layers for finding in _examine(layer)]


def _examine(layer: Layer) -> list[Finding]:
    sides = zip(("rows", "columns"), (layer.passed, layer.passed.T), layer.used, strict=True)
    return [
        _finding(layer.name, side, lines[used])
        for side, lines, used in sides
        if lines.shape[1] >= FEWEST_VALUES
    ]


def _finding(layer: str, side: str, lines: NDArray) -> Finding:
    rows, _ = concentration(lines[some].astype(float) for some in row_blocks(lines))
    single = (rows.filled < lines.shape[1] / 2) & (rows.effective < EFFECTIVE)
    found, count = int(np.count_nonzero(single)), len(lines)
    text = f"{found} of {count} {side} have a single weight among zeros"
    return Finding(layer, found / max(1, count), text)
