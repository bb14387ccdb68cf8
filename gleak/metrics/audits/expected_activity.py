"""Audit of layers of which few neurons are expected to be active."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.metrics.audits.base import AuditSpec, Broadcast, Finding
from gleak.metrics.audits.weight_matrices import large_lines

FEWEST_ROWS = 16
BUSIEST = 0.9
MEAN, DEVIATION = 0.475, 0.25
"""Of the intensities of photographs (CIFAR-10, train split), for clients without samples."""


@register("audit_activity")
class AuditActivity(AuditSpec):
    """Inactivity of the busiest tenth of the neurons of a layer that takes the samples.

    Of independent normal values of mean m and deviation s, a neuron with weights w and bias b is
    active for a share Phi((b + m sum(w)) / (s |w|)) of the samples. The statistic is one minus the
    90% quantile of these shares over the neurons: near 0 for honest layers, some of whose neurons
    respond to bright samples, and near 1 where biases or signs were chosen so that hardly any
    sample activates a neuron. With the client's samples, m and s are those of their values, and
    neurons that no sample reaches do not count: an update reveals nothing there. Values of images
    are not independent, so that the shares are not those that occur; see
    `gleak.metrics.audits.isolated_samples` for these. At least 16 neurons are needed.
    """

    source = "ours, for Nowak et al. 2024 (QBI), whose biases are quantiles"
    meaning: ClassVar[str] = (
        "Biases or signs keep nearly all neurons of a layer silent for nearly all samples: the "
        "few that activate a neuron can be read off its gradient."
    )

    limit: float = parameter(
        0.8, "inactivity above which an alarm is raised", source="ours: above honest models", gt=0
    )

    def examine(self, broadcast: Broadcast) -> list[Finding]:
        mean, deviation = MEAN, DEVIATION
        if broadcast.samples is not None and broadcast.has_samples:
            values = broadcast.drawn_samples()
            mean, deviation = float(values.mean()), float(values.std())
        findings = []
        for layer in broadcast.layers_of_samples:
            rows = large_lines(layer.weights)[0]
            if layer.reach is not None:
                rows &= layer.reach.reached[0]
            if layer.biases is not None and np.count_nonzero(rows) >= FEWEST_ROWS and deviation:
                shares = expected_shares(layer.weights[rows], layer.biases[rows], mean, deviation)
                busiest = float(np.quantile(shares, BUSIEST))
                text = f"the busiest tenth of {len(shares)} neurons expects {busiest:.1%} or more"
                findings.append(Finding(layer.name, 1 - busiest, f"{text} of the samples"))
        return findings


def expected_shares(weights: NDArray, biases: NDArray, mean: float, deviation: float) -> NDArray:
    """Compute the share of samples that activate each neuron; Shapes (K, F), (K) to (K)."""
    weights = weights.astype(float)
    scores = (biases + mean * weights.sum(axis=1)) / (deviation * np.linalg.norm(weights, axis=1))
    return np.array([(1 + math.erf(score / math.sqrt(2))) / 2 for score in scores])
