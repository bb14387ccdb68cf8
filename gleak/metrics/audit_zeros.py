"""Layers whose neurons are tied one to one, with zeros beside."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.metrics.audit import AuditSpec, Finding
from gleak.metrics.judged import concentration, row_blocks

if TYPE_CHECKING:
    from gleak.metrics.audit import Broadcast, Layer

EFFECTIVE = 1.5
FEWEST_VALUES = 16


@register("audit_zeros")
class AuditZeros(AuditSpec):
    """Largest share of a layer's rows or columns in use that zeros leave a path of their own.

    The paper's own test counts exact zeros and alarms at a half; pruned networks have more than
    that. Theirs are scattered, or leave whole neurons; those of naive crafting leave each path one
    weight, alone in its row and in its column. A line has one weight if most of its values are zero
    and the effective number of the others, sum(w^2)^2 / sum(w^4), is below 1.5. Crafting that puts
    small noise where zeros would be passes; see `gleak.metrics.audit_columns`. Rows or columns of
    fewer than 16 values say nothing.
    """

    source = "MKOR section 2: whether the majority of weights are 0 in each layer"

    limit: float = parameter(0.5, "share above which it alarms", source="MKOR section 2", gt=0)

    @override
    def examine(self, broadcast: Broadcast) -> list[Finding]:
        return [finding for layer in broadcast.layers for finding in _examine(layer)]


def _examine(layer: Layer) -> list[Finding]:
    weights, (rows, columns) = layer.passed, layer.used
    single = _single(weights)
    paths = (weights != 0) & single[0][:, None] & single[1]
    sides = zip(("rows", "columns"), (paths[rows], paths[:, columns].T), strict=True)
    return [
        _finding(layer.name, side, lines)
        for side, lines in sides
        if lines.shape[1] >= FEWEST_VALUES
    ]


def _single(weights: NDArray) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which rows, and which columns, have one weight among zeros."""
    rows, columns = concentration(weights[some].astype(float) for some in row_blocks(weights))
    height, width = weights.shape
    return (
        (rows.filled < width / 2) & (rows.effective < EFFECTIVE),
        (columns.filled < height / 2) & (columns.effective < EFFECTIVE),
    )


def _finding(layer: str, side: str, paths: NDArray[np.bool_]) -> Finding:
    found, count = int(np.count_nonzero(paths.any(axis=1))), len(paths)
    text = f"{found} of {count} {side} have one weight, alone among zeros"
    return Finding(layer, found / max(1, count), text)
