"""Likelihood of values that were not sent because others are larger (`topk`, `threshold`).

They are smaller than all that were sent: a censored observation, as in Tobin's regression (1958).
The criterion of the search does not count them (docs/results/best.md), but that of the choice
between candidates does: samples that fill in what was not sent may be too bright to be left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from gleak.attacks.matching.distances import ROUNDING
from gleak.attacks.matching.posterior import Posterior
from gleak.core.lazy import torch

BY_CHANCE = 1e-6
"""Probability that values at random positions are all so large, below which they are the largest.
"""
STEPS = np.geomspace(1, 300, 20)
"""Sizes of the noise that are tried, relative to that of the values that were sent."""
BINS = 4096


@dataclass(frozen=True)
class Censored:
    """Values of one parameter that were not sent, at some samples.

    Args:
        distances: from the least magnitude that was sent down to theirs, negative beyond it;
            Shape (K).
        counts: numbers of values at these distances; Shape (K).
    """

    distances: torch.Tensor
    counts: torch.Tensor

    @classmethod
    def of(cls, magnitudes: torch.Tensor, least: torch.Tensor) -> Censored:
        """Return values of these magnitudes, Shape (M); those below the least one in bins."""
        beyond = magnitudes[magnitudes > least]
        bound = float(least)
        counts = torch.histc(magnitudes[magnitudes <= least], BINS, 0, bound)
        below = bound * (torch.arange(BINS, device=counts.device) + 0.5) / BINS
        distances = torch.cat([least - beyond, least - below])
        counts = torch.cat([torch.ones_like(beyond), counts])
        return cls(distances.double(), counts.double())

    def unlikelihood(self, size: float) -> float:
        """Compute minus the logarithm of their probability in normal noise of a size."""
        return float(-(self.counts * torch.special.log_ndtr(self.distances / size)).sum())


def unsent_criterion(posterior: Posterior, inputs: np.ndarray, labels: np.ndarray) -> float:
    """Compute what the values that were not sent add to the criterion of one victim's samples.

    With the M values that were sent, of squared error r, the values k that were not, at a gradient
    g, and the least magnitude t of the values of their parameter that were sent,

        min_s (M log(s) + r / 2 s^2 - sum_k log Phi((t - |g_k|) / s)) - min_s (M log(s) + r / 2 s^2)

    in nats, for noise of at least the size that is left of what was sent. Parameters count whose
    values were chosen by their size, as those that were sent tell: in a random mask they would all
    be so large with a probability below `BY_CHANCE`. 0 if clients multiply what they send by an
    unknown factor.

    Args:
        posterior: of one victim.
        inputs: Shape (1, N, ...).
        labels: Shape (1, N).
    """
    problem = posterior.problem
    if not problem.sent or posterior.observation.protocol.clipping is not None:
        return 0.0
    gradients = posterior.gradients(inputs, labels)
    masks = {name: mask.flatten() > 0 for name, mask in problem.sent.items()}
    sent = {name: (problem.observed[name].flatten()[mask], mask) for name, mask in masks.items()}
    censored = [*_censored(gradients, sent)]
    if not censored:
        return 0.0
    count = sum(len(values) for values, _ in sent.values())
    power = sum(float(values.square().sum()) for values, _ in sent.values())
    error = ROUNDING * power + sum(
        float((values - gradients[name].flatten()[mask]).square().sum())
        for name, (values, mask) in sent.items()
    )
    least = math.sqrt(error / count)
    own = [count * (math.log(step) + 1 / (2 * step**2)) for step in STEPS]
    both = [
        known + sum(each.unlikelihood(least * step) for each in censored)
        for known, step in zip(own, STEPS, strict=True)
    ]
    return min(both) - min(own)


def _censored(
    gradients: dict[str, torch.Tensor], sent: dict[str, tuple[torch.Tensor, torch.Tensor]]
) -> Iterator[Censored]:
    """Yield the values that were not sent of the parameters whose largest values were."""
    for name, (values, mask) in sent.items():
        magnitudes = values.abs()
        if len(magnitudes) and not mask.all() and _are_largest(magnitudes):
            yield Censored.of(gradients[name].flatten()[~mask].abs(), magnitudes.min())


def _are_largest(magnitudes: torch.Tensor) -> bool:
    """Return True if values are too large to be of random positions; Shape (M)."""
    least, median = float(magnitudes.min()), float(magnitudes.median())
    chance = 1 - least / (2 * median) if median else 1.0
    return len(magnitudes) * math.log(chance) < math.log(BY_CHANCE)
