"""Layers whose singular values leave directions unused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gleak.metrics.audit import AuditSpec, Finding, spread_out
from gleak.registry import register
from gleak.spec import knob

if TYPE_CHECKING:
    from gleak.metrics.audit import Broadcast, Layer

LOST = 0.03
ASPECT = 4
MOST_VALUES = 512
FEWEST_VALUES = 8


@register("audit_spectrum")
class AuditSpectrum(AuditSpec):
    """Largest share of a layer's singular values that have all but vanished.

    One has vanished below 3% of the median one. Of a fresh matrix four times as long as wide none
    is below a half of it (Marchenko and Pastur 1967), and training adds to the largest. So rows and
    columns are taken at even distances, four times as many of the more numerous, for at most 512
    singular values. One of them may vanish without being counted: softmax does not train the sum of
    its inputs. Parts with fewer than 8 singular values say nothing.
    """

    source = "Marchenko and Pastur 1967, the lower edge of the spectrum"

    limit: float = knob(
        0.01, "share above which it alarms", source="ours: above honest models", gt=0
    )

    def examine(self, broadcast: Broadcast) -> list[Finding]:
        """See `AuditSpec.examine`."""
        findings = []
        for layer in broadcast.layers:
            part = _part(layer)
            if min(part.shape) >= FEWEST_VALUES:
                values = np.linalg.svd(part, compute_uv=False)
                lost = int(np.count_nonzero(values <= LOST * np.median(values)))
                text = f"{lost} of {len(values)} singular values are below 3% of the median one"
                findings.append(Finding(layer.name, max(0, lost - 1) / len(values), text))
        return findings


def _part(layer: Layer) -> np.ndarray:
    """Some rows and columns of a layer, `ASPECT` times as many of one as of the other."""
    long, short = max(layer.weights.shape), min(layer.weights.shape)
    short = min(short, long // ASPECT, MOST_VALUES)
    rows, columns = layer.weights.shape
    counts = (short, ASPECT * short) if rows <= columns else (ASPECT * short, short)
    chosen = np.ix_(spread_out(rows, counts[0]), spread_out(columns, counts[1]))
    return layer.weights[chosen]
