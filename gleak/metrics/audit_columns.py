"""Neurons that are nearly cut off from the next or the previous layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gleak.metrics.audit import AuditSpec, Finding, spread_out
from gleak.registry import register
from gleak.spec import knob

if TYPE_CHECKING:
    from gleak.metrics.audit import Broadcast, Layer

FAINT = 0.03
FEWEST_VALUES = 16
SAMPLED = 256


@register("audit_columns")
class AuditColumns(AuditSpec):
    """Largest share of a layer's columns or rows that are far fainter than its others.

    A column is what one neuron gives to the layer, a row what one neuron of the layer takes. One is
    faint if its median magnitude is below 3% of that of the typical column or row: of
    neurons made a path of their own, every weight but one is nearly zero, which a norm hides and a
    median does not. Medians are of 256 values at even distances where there are more. Convolutions
    and lines of fewer than 16 values say nothing: under weight decay filters fade by themselves, of
    SqueezeNet's on ImageNet one of 64.
    """

    limit: float = knob(
        2e-3, "share above which it alarms", source="ours: above honest models", gt=0
    )

    def examine(self, broadcast: Broadcast) -> list[Finding]:
        """See `AuditSpec.examine`."""
        return [finding for layer in broadcast.layers if layer.dense for finding in _examine(layer)]


def _examine(layer: Layer) -> list[Finding]:
    sides = {"columns": layer.weights.T, "rows": layer.weights}
    findings = []
    for side, lines in sides.items():
        if lines.shape[1] >= FEWEST_VALUES:
            found = faint_lines(lines)
            text = f"{found} of {len(lines)} {side} are below 3% of the typical one"
            findings.append(Finding(layer.name, found / len(lines), text))
    return findings


def faint_lines(lines: np.ndarray) -> int:
    """How many rows of a matrix are below `FAINT` of the typical one that is not zero."""
    sampled = lines[:, spread_out(lines.shape[1], SAMPLED)]
    medians = np.median(np.abs(sampled), axis=1)
    present = medians[medians > 0]
    typical = np.median(present) if len(present) else np.inf
    return int(np.count_nonzero(medians < FAINT * typical))
