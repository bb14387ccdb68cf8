"""Audit of neurons whose gradient is that of a single sample of the client."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.metrics.audits.base import AuditSpec, Broadcast, Finding
from gleak.metrics.audits.client_gradients import output_gradients, unit_directions

FEWEST_SAMPLES = 16
FEWEST_NEURONS = 16
NEGLIGIBLE = 1e-3
REST = 1e-2
DEVIATIONS = 2
ROUNDING = 1e-9


@register("audit_isolation")
class AuditIsolation(AuditSpec):
    """Share of a dense layer's neurons that single out one sample of a batch, beyond chance.

    Let d_ij be the derivative of the loss of sample j by the output of neuron i, of a loss whose
    gradient at the logits has unit norm: how well a sample is classified does not matter. A neuron
    singles out a sample if one d_ij alone exceeds a thousandth of the largest. Two neurons do so
    together if d_i - c d_k, with c the median of their ratios, has one value above a hundredth of
    the largest, as in neighbouring cumulative bins; neurons are compared with their neighbours in
    the order of sum_j |d_ij|. Of n such neurons in a layer, n - 2 sqrt(n) count, about the lower
    end of the 95% interval of a Poisson number: some neurons of honest networks are such, too. The
    statistic says what a batch of the client would reveal, whoever chose the weights. One backward
    pass.
    """

    source = "ours; Fowl et al. 2022, Boenisch et al. 2023: what makes samples readable"
    meaning: ClassVar[str] = (
        "Of your own batch, an unusual share of the neurons of a layer responds to a single "
        "sample each, so that your update would contain these samples in the clear."
    )

    limit: float = parameter(
        0.1, "share above which an alarm is raised", source="ours: above honest models", gt=0
    )
    samples: int = parameter(64, "number of samples in the batch", source="ours", ge=FEWEST_SAMPLES)

    def examine(self, broadcast: Broadcast) -> list[Finding]:
        data = broadcast.own_samples(FEWEST_SAMPLES)
        gradients = output_gradients(
            broadcast.network(), data, self.samples, broadcast.seed, unit_directions
        )
        return [
            _examine(name, values)
            for name, values in gradients.items()
            if len(values) >= FEWEST_NEURONS
        ]


def _examine(name: str, gradients: NDArray) -> Finding:
    alone, paired = isolating(gradients)
    count, text = len(gradients), "neurons respond to one sample of"
    text = f"{alone} of {count} {text} {gradients.shape[1]}, {paired} more in pairs"
    found = alone + paired
    return Finding(name, max(0.0, found - DEVIATIONS * math.sqrt(found)) / count, text)


def isolating(gradients: NDArray) -> tuple[int, int]:
    """Count the neurons that single out a sample, alone and with a neighbour; Shape (K, N)."""
    sizes = np.abs(gradients)
    largest = sizes.max(axis=1, keepdims=True)
    present = largest[:, 0] > ROUNDING * sizes.max(initial=0)
    order = np.argsort(-sizes.sum(axis=1), kind="stable")
    order = order[present[order]]
    active = (sizes > NEGLIGIBLE * largest)[order]
    counts = active.sum(axis=1)
    first, second = gradients[order][:-1], gradients[order][1:]
    both = active[:-1] & active[1:]
    ratios = np.divide(first, second, out=np.full_like(first, np.nan), where=both)
    many = both.sum(axis=1) > 1
    factors = np.nanmedian(ratios[many], axis=1, keepdims=True) if many.any() else 0.0
    rest = np.abs(first[many] - factors * second[many])
    singled = (rest > REST * largest[order][:-1][many]).sum(axis=1) == 1
    return int(np.count_nonzero(counts == 1)), int(np.count_nonzero(singled))
