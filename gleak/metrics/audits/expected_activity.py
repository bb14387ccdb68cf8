"""Audit of layers of which few neurons are active, or are expected to be."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.metrics.audits.base import REACH_SAMPLES, AuditSpec, Broadcast, Finding
from gleak.metrics.audits.client_gradients import one_direction, output_gradients
from gleak.metrics.audits.isolated_samples import NEGLIGIBLE, ROUNDING
from gleak.metrics.audits.weight_matrices import large_lines

FEWEST_ROWS = 16
BUSIEST = 0.9
LEAST_ACTIVE = 0.25
MEAN, DEVIATION = 0.475, 0.25
"""Of the intensities of photographs (CIFAR-10, train split), for clients without samples."""


@register("audit_activity")
class AuditActivity(AuditSpec):
    """Inactivity of the busiest tenth of the neurons of a layer that takes the samples.

    A neuron is active for a sample if the derivative by its output of one combination of the
    logits, which all samples share, exceeds a thousandth of the neuron's largest. The statistic is
    one minus the 90% quantile over the neurons of the share of samples for which they are active:
    small for honest layers, some of whose neurons respond to bright samples, and near 1 where
    biases or signs were chosen so that hardly any sample activates a neuron. Neurons that are
    active for no sample do not count: an update reveals nothing there. Layers score 0 if those are
    more than three quarters, as of networks that training damaged.

    Without samples, the shares are those of independent normal values of the mean m and deviation s
    of photographs, of which a neuron with weights w and bias b is active for
    Phi((b + m sum(w)) / (s |w|)). At least 16 neurons are needed.
    """

    source = "ours, for Nowak et al. 2024 (QBI), whose biases are quantiles"
    meaning: ClassVar[str] = (
        "Biases or signs keep nearly all neurons of a layer silent for nearly all samples: the "
        "few that activate a neuron can be read off its gradient."
    )

    limit: float = parameter(
        0.7, "inactivity above which an alarm is raised", source="ours: above honest models", gt=0
    )

    def examine(self, broadcast: Broadcast) -> list[Finding]:
        layers, measured = broadcast.layers_of_samples, {}
        if layers and broadcast.samples is not None and broadcast.has_samples:
            gradients = output_gradients(
                broadcast.network(),
                broadcast.samples,
                REACH_SAMPLES,
                broadcast.seed,
                one_direction,
            )
            measured = {name: active_shares(values) for name, values in gradients.items()}
        findings = []
        for layer in layers:
            rows = large_lines(layer.weights)[0]
            if layer.name in measured:
                shares = measured[layer.name]
            elif layer.biases is not None and rows.any():
                shares = expected_shares(layer.weights[rows], layer.biases[rows], MEAN, DEVIATION)
            else:
                continue
            if len(shares) >= FEWEST_ROWS:
                findings.append(_examine(layer.name, shares, len(layer.weights)))
        return findings


def _examine(name: str, shares: NDArray, count: int) -> Finding:
    busiest = float(np.quantile(shares, BUSIEST))
    text = (
        f"the busiest tenth of {len(shares)} neurons of {count} responds to {busiest:.1%} or more"
    )
    statistic = 1 - busiest if len(shares) >= LEAST_ACTIVE * count else 0.0
    return Finding(name, statistic, f"{text} of the samples")


def active_shares(gradients: NDArray) -> NDArray:
    """Compute the share of samples for which each neuron is active; Shapes (K, N) to (L).

    Neurons that are active for no sample are left out.
    """
    sizes = np.abs(gradients)
    largest = sizes.max(axis=1, keepdims=True, initial=0)
    present = largest[:, 0] > ROUNDING * sizes.max(initial=0)
    return np.asarray((sizes[present] > NEGLIGIBLE * largest[present]).mean(axis=1))


def expected_shares(weights: NDArray, biases: NDArray, mean: float, deviation: float) -> NDArray:
    """Compute the share of samples that activate each neuron; Shapes (K, F), (K) to (K)."""
    weights = weights.astype(float)
    scores = (biases + mean * weights.sum(axis=1)) / (deviation * np.linalg.norm(weights, axis=1))
    return np.array([(1 + math.erf(score / math.sqrt(2))) / 2 for score in scores])
