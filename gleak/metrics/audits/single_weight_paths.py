"""Layers whose neurons are tied one to one, with zeros beside."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.metrics.audits.base import AuditSpec, Finding
from gleak.metrics.audits.weight_matrices import Concentration, concentration, row_blocks
from gleak.metrics.base import MetricUnavailable

if TYPE_CHECKING:
    from gleak.metrics.audits.base import Broadcast, Layer

MOST_EFFECTIVE = 1.5
FEWEST_LINE_VALUES = 16
FEWEST_NONZERO = 32
CHANCE_LINES = 5
MOST_EFFECTIVE_FILTER = 3.0
CHANCE_FILTERS = 1
NEGLIGIBLE = 1e-3
SMALL = 0.03
FEWEST_WEIGHTS = 1000
SAMPLED_WEIGHTS = 200_000


@register("audit_zeros")
class AuditZeros(AuditSpec):
    """Largest share of a layer's rows or columns in use that zeros leave a path of their own.

    The paper's own test counts exact zeros and alarms at a half; pruned networks have more than
    that. Theirs are scattered, or leave whole neurons; those of naive crafting leave each path one
    weight, alone in its row and in its column. A line has one weight if most of its values are zero
    and the effective number of the others, sum(w^2)^2 / sum(w^4), is below 1.5. Crafting that puts
    small noise where zeros would be passes; see `gleak.metrics.audits.single_weight_paths`. Rows or
    columns of fewer than 16 values say nothing.
    """

    source = "MKOR section 2: whether the majority of weights are 0 in each layer"

    limit: float = parameter(0.5, "share above which it alarms", source="MKOR section 2", gt=0)

    @override
    def examine(self, broadcast: Broadcast) -> list[Finding]:
        return [finding for layer in broadcast.layers for finding in _examine_zeros(layer)]


def _examine_zeros(layer: Layer) -> list[Finding]:
    weights, (rows, columns) = layer.passed, layer.used
    single = _single(weights)
    paths = (weights != 0) & single[0][:, None] & single[1]
    sides = zip(("rows", "columns"), (paths[rows], paths[:, columns].T), strict=True)
    return [
        _zeros_finding(layer.name, side, lines)
        for side, lines in sides
        if lines.shape[1] >= FEWEST_LINE_VALUES
    ]


def _single(weights: NDArray) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which rows, and which columns, have one weight among zeros."""
    rows, columns = concentration(weights[some].astype(float) for some in row_blocks(weights))
    height, width = weights.shape
    return (
        (rows.filled < width / 2) & (rows.effective < MOST_EFFECTIVE),
        (columns.filled < height / 2) & (columns.effective < MOST_EFFECTIVE),
    )


def _zeros_finding(layer: str, side: str, paths: NDArray[np.bool_]) -> Finding:
    found, count = int(np.count_nonzero(paths.any(axis=1))), len(paths)
    text = f"{found} of {count} {side} have one weight, alone among zeros"
    return Finding(layer, found / max(1, count), text)


@register("audit_columns")
class AuditColumns(AuditSpec):
    """Largest share of a dense layer's columns or rows that a single weight makes up.

    A column is what one neuron gives to the layer, a row what one neuron of the layer takes. The
    effective number of weights of a line, sum(w^2)^2 / sum(w^4), is 1 if one weight makes it up;
    below 1.5 the line is a path, however small as a whole. Rows and columns are balanced first
    (`gleak.metrics.audits.weight_matrices.Balanced`), so that neurons whose weights are large do
    not make up the columns of the others. Five lines of a layer may be so by chance. Convolutions,
    and lines with fewer than 32 weights that are not zero, say nothing.
    """

    limit: float = parameter(
        2e-3, "share above which it alarms", source="ours: above honest models", gt=0
    )

    @override
    def examine(self, broadcast: Broadcast) -> list[Finding]:
        return [
            finding
            for layer in broadcast.layers
            if layer.dense
            for finding in _examine_lines(layer)
        ]


def _examine_lines(layer: Layer) -> list[Finding]:
    sides = zip(("rows", "columns"), concentration(layer.balanced.blocks()), strict=True)
    return [
        _line_finding(layer.name, side, lines)
        for side, lines in sides
        if lines.filled.max(initial=0) >= FEWEST_NONZERO
    ]


def _line_finding(layer: str, side: str, lines: Concentration) -> Finding:
    paths = (lines.filled >= FEWEST_NONZERO) & (lines.effective < MOST_EFFECTIVE)
    found, count = int(np.count_nonzero(paths)), len(paths)
    text = f"{found} of {count} {side} are made up by one weight"
    return Finding(layer, max(0, found - CHANCE_LINES) / count, text)


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
        return [examine_filters(each) for each in convolutions if each.passed.size]


def examine_filters(layer: Layer) -> Finding:
    """The share of a convolution's filters."""
    weights = layer.passed[layer.used[0]]
    rows, _ = concentration(weights[some].astype(float) for some in row_blocks(weights))
    outliers = (rows.filled >= FEWEST_NONZERO) & (rows.effective < MOST_EFFECTIVE_FILTER)
    found, count = int(np.count_nonzero(outliers)), len(layer.passed)
    text = f"{found} of {count} filters are made up by one weight"
    return Finding(layer.name, max(0, found - CHANCE_FILTERS) / count, text)


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
            _examine_negligible(layer)
            for layer in broadcast.layers
            if layer.reach and layer.balanced.weights.size >= FEWEST_WEIGHTS
        ]


def _examine_negligible(layer: Layer) -> Finding:
    size, typical = layer.balanced.weights.size, _median(layer)
    below = np.zeros(2, dtype=int)
    for block in layer.balanced.blocks():
        magnitudes = np.abs(block[block != 0])
        below += [np.count_nonzero(magnitudes < b * typical) for b in (NEGLIGIBLE, SMALL)]
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
