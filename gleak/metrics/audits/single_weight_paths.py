"""Audits of paths of one weight per layer, which copy values, and of the noise that hides them."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.metrics.audits.base import AuditSpec, Broadcast, Finding, Layer
from gleak.metrics.audits.weight_matrices import concentration, row_blocks
from gleak.metrics.base import MetricUnavailable

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
"""About the largest number of weights of which a median is computed."""


@register("audit_zeros")
class AuditZeros(AuditSpec):
    """Largest share of a layer's rows or columns in use with a single weight among zeros.

    The paper's own test counts exact zeros and alarms at a half (`zero_weights`); pruned networks
    have more than that. Their zeros are scattered or cover whole neurons; those of naive crafting
    leave each path one weight, alone in its row and in its column. A line has a single weight if
    most of its values are zero and the effective number of the others is below 1.5. Crafting that
    replaces zeros by small noise passes; see `AuditColumns`. Lines need at least 16 values.
    """

    source = "ours, for MKOR section 2: whether the majority of weights are 0 in each layer"
    meaning: ClassVar[str] = (
        "Single weights among zeros lead values through the network unmixed, so that they "
        "reach the update as they are."
    )

    limit: float = parameter(
        0.5, "share above which an alarm is raised", source="MKOR section 2", gt=0
    )

    def examine(self, broadcast: Broadcast) -> list[Finding]:
        findings = []
        for layer in broadcast.layers:
            weights = layer.reached_weights
            lines = concentration(weights[block].astype(float) for block in row_blocks(weights))
            single_rows, single_columns = (
                (side.filled < length / 2) & (side.effective < MOST_EFFECTIVE)
                for side, length in zip(lines, weights.shape[::-1], strict=True)
            )
            paths = (weights != 0) & single_rows[:, None] & single_columns
            rows, columns = layer.used_lines
            for side, used in (("rows", paths[rows]), ("columns", paths[:, columns].T)):
                if used.shape[1] >= FEWEST_LINE_VALUES:
                    count = int(np.count_nonzero(used.any(axis=1)))
                    text = f"{count} of {len(used)} {side} have one weight, alone among zeros"
                    findings.append(Finding(layer.name, count / max(1, len(used)), text))
        return findings


@register("audit_columns")
class AuditColumns(AuditSpec):
    """Largest share of a dense layer's columns or rows that are dominated by a single weight.

    A column contains the output weights of one neuron of the previous layer, a row the input
    weights of one neuron of the layer. A line with an effective number of weights below 1.5 is a
    path, however small it is as a whole. Rows and columns are balanced first
    (`gleak.metrics.audits.weight_matrices.Balanced`), so that neurons with large weights do not
    dominate the columns of the others. Five lines per layer may occur by chance. Convolutions, and
    lines with fewer than 32 nonzero weights, are skipped.
    """

    meaning: ClassVar[str] = (
        "Neurons pass on one value each instead of a mixture: values of your samples reach the "
        "update as they are."
    )

    limit: float = parameter(
        2e-3, "share above which an alarm is raised", source="ours: above honest models", gt=0
    )

    def examine(self, broadcast: Broadcast) -> list[Finding]:
        findings = []
        for layer in broadcast.layers:
            if not layer.dense:
                continue
            concentrations = concentration(layer.balanced.blocks())
            for side, lines in zip(("rows", "columns"), concentrations, strict=True):
                filled = lines.filled >= FEWEST_NONZERO
                if filled.any():
                    count = int(np.count_nonzero(filled & (lines.effective < MOST_EFFECTIVE)))
                    text = f"{count} of {len(filled)} {side} are dominated by one weight"
                    share = max(0, count - CHANCE_LINES) / len(filled)
                    findings.append(Finding(layer.name, share, text))
        return findings


@register("audit_outliers")
class AuditOutliers(AuditSpec):
    """Largest share of a convolution's filters that are dominated by a single weight.

    One-hot kernels that copy an image have one weight of 1 among many of about 0.01: the effective
    number of weights of such a filter is below 3, and at least 4 for learnt filters of any scale.
    One filter per layer may occur by chance. Filters with fewer than 32 nonzero weights are
    skipped.
    """

    meaning: ClassVar[str] = (
        "Filters copy the image instead of mixing its pixels, so that later layers, and the "
        "update, contain it."
    )

    limit: float = parameter(
        0.01, "share above which an alarm is raised", source="ours: above honest models", gt=0
    )

    def examine(self, broadcast: Broadcast) -> list[Finding]:
        convolutions = [layer for layer in broadcast.layers if not layer.dense]
        return [examine_filters(layer) for layer in convolutions if layer.reached_weights.size]


def examine_filters(layer: Layer) -> Finding:
    """Compute the share of a convolution's filters."""
    weights = layer.reached_weights[layer.used_lines[0]]
    rows, _ = concentration(weights[block].astype(float) for block in row_blocks(weights))
    outliers = (rows.filled >= FEWEST_NONZERO) & (rows.effective < MOST_EFFECTIVE_FILTER)
    count, filters = int(np.count_nonzero(outliers)), len(layer.reached_weights)
    text = f"{count} of {filters} filters are dominated by one weight"
    return Finding(layer.name, max(0, count - CHANCE_FILTERS) / filters, text)


@register("audit_negligible")
class AuditNegligible(AuditSpec):
    """Largest share of a layer's weights that are noise in place of zeros.

    The statistic counts the weights below a thousandth of the layer's median magnitude and
    subtracts those between a thousandth and 3% of it: for values drawn from a smooth density, or
    shrunk over many orders of magnitude, the latter are more numerous and the result is zero; noise
    small enough not to disturb what passes leaves a gap. Zeros are not counted, and rows and
    columns are balanced first. Weights that Adam decays where no sample reaches them leave the same
    gap, so samples are needed. Layers without influence on the logits of the samples, or with fewer
    than 1,000 audited weights, are skipped.
    """

    meaning: ClassVar[str] = (
        "Many weights are practically zero and none are merely small: noise was written over "
        "them, to hide that paths through the network were cut."
    )

    limit: float = parameter(
        0.04, "share above which an alarm is raised", source="ours: above honest models", gt=0
    )

    def examine(self, broadcast: Broadcast) -> list[Finding]:
        if not broadcast.has_samples:
            raise MetricUnavailable(
                "it needs the client's own samples, to separate noise from decayed weights; "
                "give samples (--data)"
            )
        return [
            _examine_negligible(layer)
            for layer in broadcast.layers
            if layer.reach and layer.balanced.weights.size >= FEWEST_WEIGHTS
        ]


def _examine_negligible(layer: Layer) -> Finding:
    size = layer.balanced.weights.size
    step = size // SAMPLED_WEIGHTS | 1
    sampled = [np.abs(block.ravel()[::step]) for block in layer.balanced.blocks()]
    magnitudes = np.concatenate(sampled)
    present = magnitudes[magnitudes > 0]
    median = float(np.median(present)) if present.size else 0.0
    below = np.zeros(2, dtype=int)
    for block in layer.balanced.blocks():
        magnitudes = np.abs(block[block != 0])
        below += [np.count_nonzero(magnitudes < share * median) for share in (NEGLIGIBLE, SMALL)]
    negligible, between = int(below[0]), int(below[1] - below[0])
    text = f"{negligible} of {size} weights are negligible, {between} small"
    return Finding(layer.name, max(0, negligible - between) / size, text)
