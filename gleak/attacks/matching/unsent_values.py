"""Likelihood of values that were not sent because others are larger (`topk`, `threshold`).

They are smaller than all that were sent: a censored observation, as in Tobin's regression (1958).
The criterion of the search does not count them (docs/results/best.md), but that of the choice
between candidates does: samples that fill in what was not sent may be too bright to be left out.
A server is not told why values are missing: the samples of least criterion tell.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from gleak.attacks.matching.distances import ROUNDING
from gleak.attacks.matching.posterior import Posterior
from gleak.core.lazy import torch

STEPS = np.geomspace(1, 300, 20)
"""Sizes of the noise that are tried, relative to that of the values that were sent."""
WRONG = 1e-3
"""Probability of any size for a value that was not sent, which samples have made up."""
BINS = 4096


@dataclass(frozen=True)
class Censored:
    """Values of one parameter that were not sent, at some samples.

    Args:
        distances: from the least magnitude that was sent down to theirs, negative beyond it;
            Shape (K).
        counts: numbers of values at these distances; Shape (K).
        larger: number of values beyond the least magnitude that was sent.
        smaller: number of the others that are not zero.
    """

    distances: torch.Tensor
    counts: torch.Tensor
    larger: int
    smaller: int

    @classmethod
    def of(cls, magnitudes: torch.Tensor, least: torch.Tensor) -> Censored:
        """Return values of these magnitudes, Shape (M); those below the least one in bins."""
        beyond = magnitudes[magnitudes > least]
        bound = float(least)
        counts = torch.histc(magnitudes[magnitudes <= least], BINS, 0, bound)
        below = bound * (torch.arange(BINS, device=counts.device) + 0.5) / BINS
        distances = torch.cat([least - beyond, least - below])
        counts = torch.cat([torch.ones_like(beyond), counts])
        larger = len(beyond)
        smaller = int(magnitudes.count_nonzero()) - larger
        return cls(distances.double(), counts.double(), larger, smaller)

    def unlikelihood(self, size: float) -> float:
        """Compute minus the logarithm of their probability, in normal noise of a size or wrong."""
        normal = torch.special.log_ndtr(self.distances / size) + math.log1p(-WRONG)
        either = normal.logaddexp(normal.new_tensor(math.log(WRONG)))
        return float(-(self.counts * either).sum())


@dataclass(frozen=True)
class Unsent:
    """Explanation of which values were not sent, by one victim's samples.

    Args:
        added: to the criterion of the samples, in nats, if values were left out by their size.
        larger: share of those that were not sent and are not zero whose gradient is larger than the
            least value of their parameter that was sent; nearly 1 if they were left out at random.
    """

    added: float = 0.0
    larger: float = 1.0

    @property
    def by_size(self) -> bool:
        """True if the samples say of most values that they were left out by their size."""
        return self.larger < 0.5


def unsent_values(posterior: Posterior, inputs: np.ndarray, labels: np.ndarray) -> Unsent:
    """Compute how well samples explain the values that were not sent.

    With the M values that were sent, of squared error r, the values k that were not, at a gradient
    g, the least magnitude t of the values of their parameter that were sent, and w of `WRONG`, they
    add

        min_s (N(s) - sum_k log((1 - w) Phi((t - |g_k|) / s) + w)) - min_s N(s),
        N(s) = M log(s) + r / 2 s^2,

    for noise of at least the size that is left of what was sent. Without w, samples that explain
    what was sent exactly and a few of the other values not at all would lose to worse ones. Values
    tell nothing of clients that multiply what they send by an unknown factor.

    Args:
        posterior: of one victim.
        inputs: Shape (1, N, ...).
        labels: Shape (1, N).
    """
    problem = posterior.problem
    if not problem.sent or posterior.observation.protocol.clipping is not None:
        return Unsent()
    gradients = posterior.gradients(inputs, labels)
    masks = {name: mask.flatten() > 0 for name, mask in problem.sent.items()}
    sent = {name: problem.observed[name].flatten()[mask] for name, mask in masks.items()}
    found = {name: gradients[name].flatten() for name in masks}
    censored = [
        Censored.of(found[name][~mask].abs(), sent[name].abs().min())
        for name, mask in masks.items()
        if mask.any() and not mask.all()
    ]
    if not censored:
        return Unsent()
    count = sum(map(len, sent.values()))
    power = sum(float(values.square().sum()) for values in sent.values())
    error = ROUNDING * power + sum(
        float((values - found[name][masks[name]]).square().sum()) for name, values in sent.items()
    )
    least = math.sqrt(error / count)
    own = [count * (math.log(step) + 1 / (2 * step**2)) for step in STEPS]
    both = [
        known + sum(each.unlikelihood(least * step) for each in censored)
        for known, step in zip(own, STEPS, strict=True)
    ]
    larger = sum(each.larger for each in censored)
    total = larger + sum(each.smaller for each in censored)
    return Unsent(min(both) - min(own), larger / total if total else 1.0)
