"""Audit of neurons that measure the same of a sample and differ in their biases alone."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.metrics.audits.base import AuditSpec, Broadcast, Finding

ALIGNED = 0.5
FEWEST_ALIGNED = 8
LEAST_SHARE = 0.1


@register("audit_direction")
class AuditDirection(AuditSpec):
    """Spread of the thresholds of neurons that share one direction, in a layer of the samples.

    Let u be the first right singular vector of the rows w, scaled to unit norm. Rows with
    |cos(w, u)| above 0.5 measure the same of a sample, u x, and a neuron with bias b is active on
    one side of the threshold t = -b / (w u). The statistic is the distance of the quartiles of t
    over that of the smallest and largest u x of images with values in [0, 1], sum |u|. It is that
    of the bins of a planted layer, which divide samples by their brightness. Neurons that training
    with weight decay left in one direction have thresholds near each other. Neurons that no sample
    of the client reaches do not count. Layers with fewer than 8 such rows, or a tenth of them,
    score 0.
    """

    source = "ours, for Fowl et al. 2022 (Robbing the Fed), whose rows are equal"
    meaning: ClassVar[str] = (
        "Many neurons measure the same of a sample and differ in their threshold alone: they "
        "sort your samples into bins, and a sample alone in its bin can be read off your "
        "update."
    )

    limit: float = parameter(
        0.06, "spread above which an alarm is raised", source="ours: above honest models", gt=0
    )

    def examine(self, broadcast: Broadcast) -> list[Finding]:
        findings = []
        for layer in broadcast.layers_of_samples:
            if layer.biases is not None:
                reached = slice(None) if layer.reach is None else layer.reach.reached[0]
                findings.append(_examine(layer.name, layer.weights[reached], layer.biases[reached]))
        return findings


def _examine(name: str, weights: NDArray, biases: NDArray) -> Finding:
    norms = np.linalg.norm(weights, axis=1)
    rows, biases = weights[norms > 0].astype(float), biases[norms > 0].astype(float)
    units = rows / norms[norms > 0, None]
    direction = first_direction(units)
    aligned = np.abs(units @ direction) > ALIGNED
    count = int(np.count_nonzero(aligned))
    spread = 0.0
    if count >= max(FEWEST_ALIGNED, LEAST_SHARE * len(rows)):
        thresholds = -biases[aligned] / (rows[aligned] @ direction)
        low, high = np.quantile(thresholds, (0.25, 0.75))
        spread = float(high - low) / float(np.abs(direction).sum())
    text = f"{count} of {len(rows)} rows share a direction; their thresholds spread by {spread:.2g}"
    return Finding(name, spread, text)


def first_direction(units: NDArray) -> NDArray:
    """Compute the first right singular vector from the smaller Gram matrix; Shape (in)."""
    if not len(units):
        return np.zeros(units.shape[1])
    if len(units) < units.shape[1]:
        vector = np.linalg.eigh(units @ units.T)[1][:, -1] @ units
        return np.asarray(vector / np.linalg.norm(vector))
    return np.asarray(np.linalg.eigh(units.T @ units)[1][:, -1])
