"""Layers in which some neurons depend on each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.metrics.audit import AuditSpec, Finding, spread_out

if TYPE_CHECKING:
    from gleak.metrics.audit import Broadcast
    from gleak.metrics.judged import Balanced

LOST = 0.03
SMALL = 0.3
CONFINED = 0.6
EACH = 1.8
ASPECT = 4
MOST_VALUES = 512
FEWEST_VALUES = 16
BY_CHANCE = 2


@register("audit_spectrum")
class AuditSpectrum(AuditSpec):
    """Largest share of a layer's singular values that vanish because pairs of lines are dependent.

    One has vanished below 3% of the median one. Of a fresh matrix four times as long as wide none
    is below a half of it (Marchenko and Pastur 1967). Weight decay shrinks many over all orders of
    magnitude, so those between 3% and 30% are subtracted. Factorised layers lose directions that
    all lines share, and faint lines are directions of their own; so the lost ones count only if the
    lines that they lie in (their effective number) are fewer than 60% of all and 1.8 for each
    direction or more, as those of pairs are. Rows and columns are balanced and taken at even
    distances, four times as many of the more numerous, for at most 512 singular values. Two of them
    may vanish without being counted, one since softmax does not train the sum of its inputs. Parts
    with fewer than 16 singular values say nothing.
    """

    source = "Marchenko and Pastur 1967, the lower edge of the spectrum"

    limit: float = parameter(
        0.01, "share above which it alarms", source="ours: above honest models", gt=0
    )

    @override
    def examine(self, broadcast: Broadcast) -> list[Finding]:
        layers = [layer for layer in broadcast.layers if layer.balanced.weights.size]
        parts = {layer.name: _part(layer.balanced) for layer in layers}
        return [
            _examine(name, part) for name, part in parts.items() if min(part.shape) >= FEWEST_VALUES
        ]


def _examine(name: str, part: NDArray) -> Finding:
    """Of a part with no more rows than columns."""
    directions, values, _ = np.linalg.svd(part, full_matrices=False)
    lost, small = (values <= share * np.median(values) for share in (LOST, SMALL))
    found = 2 * np.count_nonzero(lost) - np.count_nonzero(small) - BY_CHANCE
    count, lines = np.count_nonzero(lost), _effective_lines(directions[:, lost])
    confined = EACH * count < lines < CONFINED * len(part)
    text = f"{count} of {len(values)} singular values vanish, in about {lines:.0f} lines"
    return Finding(name, max(0, int(found)) / len(values) if confined else 0.0, text)


def _effective_lines(directions: NDArray) -> float:
    """How many lines some orthonormal directions, Shape (lines, lost), lie in."""
    shares = (directions**2).sum(axis=1)
    return float(shares.sum() ** 2 / (shares**2).sum()) if shares.any() else 0.0


def _part(balanced: Balanced) -> NDArray:
    """Some rows and columns, `ASPECT` times as many of one as of the other, the fewer as rows."""
    rows, columns = balanced.weights.shape
    long, short = max(rows, columns), min(rows, columns)
    short = min(short, long // ASPECT, MOST_VALUES)
    counts = (short, ASPECT * short) if rows <= columns else (ASPECT * short, short)
    chosen = [spread_out(rows, counts[0]), spread_out(columns, counts[1])]
    part = balanced.weights[np.ix_(*chosen)] * balanced.columns[chosen[1]]
    part *= balanced.rows[chosen[0], None]
    return part if rows <= columns else part.T
