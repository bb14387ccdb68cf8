"""Neurons that are tied to one neuron of the next or the previous layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from typing_extensions import override

from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.metrics.audit import AuditSpec, Finding
from gleak.metrics.judged import Concentration, concentration

if TYPE_CHECKING:
    from gleak.metrics.audit import Broadcast, Layer

EFFECTIVE = 1.5
FEWEST_VALUES = 32
BY_CHANCE = 5


@register("audit_columns")
class AuditColumns(AuditSpec):
    """Largest share of a dense layer's columns or rows that a single weight makes up.

    A column is what one neuron gives to the layer, a row what one neuron of the layer takes. The
    effective number of weights of a line, sum(w^2)^2 / sum(w^4), is 1 if one weight makes it up;
    below 1.5 the line is a path, however small as a whole. Rows and columns are balanced first
    (`gleak.metrics.judged.Balanced`), so that neurons whose weights are large do not make up the
    columns of the others. Five lines of a layer may be so by chance. Convolutions, and lines with
    fewer than 32 weights that are not zero, say nothing.
    """

    limit: float = parameter(
        2e-3, "share above which it alarms", source="ours: above honest models", gt=0
    )

    @override
    def examine(self, broadcast: Broadcast) -> list[Finding]:
        return [finding for layer in broadcast.layers if layer.dense for finding in _examine(layer)]


def _examine(layer: Layer) -> list[Finding]:
    sides = zip(("rows", "columns"), concentration(layer.balanced.blocks()), strict=True)
    return [
        _finding(layer.name, side, lines)
        for side, lines in sides
        if lines.filled.max(initial=0) >= FEWEST_VALUES
    ]


def _finding(layer: str, side: str, lines: Concentration) -> Finding:
    paths = (lines.filled >= FEWEST_VALUES) & (lines.effective < EFFECTIVE)
    found, count = int(np.count_nonzero(paths)), len(paths)
    text = f"{found} of {count} {side} are made up by one weight"
    return Finding(layer, max(0, found - BY_CHANCE) / count, text)
