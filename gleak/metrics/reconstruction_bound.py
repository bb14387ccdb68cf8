"""Upper bound on the success of every reconstruction attack against Gaussian noise."""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from gleak.core.lazy import scipy
from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.metrics.base import Comparison, MetricUnavailable
from gleak.metrics.epsilon import GaussianNoiseMetric, defense_of

if TYPE_CHECKING:
    from opacus.accountants.analysis.prv import DiscretePRV


EPSILON_ERROR = 0.01
"""Largest error of a privacy loss; a bound is larger by up to this share of itself."""
DELTA_ERROR = 1e-9
"""Probability that an error is larger, and what it adds to a bound."""
MOST_POINTS = 2**23
"""Largest number of discrete privacy losses, about a gigabyte."""
MOST_STEPS = 10**15
"""Largest number of steps, which double precision distinguishes."""
LEAST_NOISE = 1e-8
"""Least noise multiplier for opacus, which does not return if powers of it are not finite."""
LARGEST_LOSS = 700.0
"""The exponential of larger privacy losses is not finite."""


def reconstruction_bound(
    noise_multiplier: float, prior: float, steps: int = 1, sampling_rate: float = 1
) -> float:
    """Compute an upper bound on the probability that any attack reconstructs a sample.

    The attack knows the mechanism, everything but the unknown sample z, and the prior from which z
    is drawn independently of the noise. It succeeds if its guess is close enough to z, for any
    measure of closeness; ``prior`` is the probability that the best guess without the release is.
    Let mu_z be the distribution of the release and nu that of a release without z. For each
    release a guess is close to z with probability at most ``prior``, so the success under nu is at
    most ``prior``; and with mu_z and nu as far apart as noise and clipping allow, the success is at
    most the blow-up sup {mu(E): nu(E) <= prior}, which is concave in ``prior``.

    For T steps with all samples it is Phi(Phi^-1(prior) + sqrt(T) / z), z being the noise
    multiplier, the power of a Gaussian test (Dong et al. 2022). With subsampling mu is a Gaussian
    mixture: the blow-up is the least exp(epsilon) prior + delta(epsilon) over all epsilon, where
    the composition's delta(epsilon) is that of privacy loss random variables (opacus). The bound
    of all samples holds with subsampling too, and is returned if it is the smaller one, or if the
    noise is so strong that it hardly exceeds the prior.

    Args:
        noise_multiplier: standard deviation of the noise over the largest norm of the sample's part
            of a release, as in DP-SGD and opacus.
        prior: probability of success without the release: 1 / n for n equally probable candidates.
        steps: releases that may use the sample.
        sampling_rate: probability that a step uses it (Poisson sampling).

    Returns:
        The bound, at least ``prior`` and at most 1; with subsampling up to 1% and 1e-9 too large.

    Raises:
        ValueError: an argument is no number, or out of range.
        MetricUnavailable: with subsampling, the noise is too weak for the accountant.

    Source:
        Hayes, Mahloujifar and Balle 2023 (reconstruction robustness by the blow-up function), where
        the blow-up of a mixture is estimated by Monte Carlo; Balle, Cherubin and Hayes 2022.
    """
    ranges = {
        "noise_multiplier above 0": _real(noise_multiplier) > 0,
        "prior above 0 and below 1": 0 < _real(prior) < 1,
        f"a whole number of steps of at least 1 and at most {MOST_STEPS:.0e}": (
            1 <= _real(steps) <= MOST_STEPS and steps % 1 == 0
        ),
        "sampling_rate above 0 and at most 1": 0 < _real(sampling_rate) <= 1,
    }
    for requirement, holds in ranges.items():
        if not holds:
            raise ValueError(
                f"reconstruction_bound: give {requirement}, numbers in the range of a float"
            )
    with_all = gaussian_blow_up(noise_multiplier / math.sqrt(steps), prior)
    if sampling_rate == 1 or with_all <= math.exp(EPSILON_ERROR) * prior:
        return with_all
    return min(with_all, _mixture_blow_up(noise_multiplier, prior, steps, sampling_rate))


def _real(value: Any) -> float:
    """Return a number as a float; NaN for other values, and beyond the range of a float."""
    try:
        return math.nan if isinstance(value, str | bytes) else float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def gaussian_blow_up(noise_multiplier: float, prior: float) -> float:
    """Compute the largest probability under N(1, z^2) of an event, given that under N(0, z^2)."""
    with np.errstate(divide="ignore", over="ignore"):
        shift = 1 / np.float64(noise_multiplier)
        return float(scipy.special.ndtr(scipy.special.ndtri(prior) + shift))


def _mixture_blow_up(
    noise_multiplier: float, prior: float, steps: int, sampling_rate: float
) -> float:
    """Compute the least exp(epsilon) prior + delta(epsilon); see `reconstruction_bound`."""
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        losses = _privacy_losses(noise_multiplier, steps, sampling_rate)
        points, masses = losses.domain.ts, np.maximum(losses.pmf, 0)
        above = np.flip(np.flip(masses).cumsum())
        weighted = np.where(points > -LARGEST_LOSS, masses * np.exp(-points), 0)
        factors = np.exp(points)
        deltas = above - factors * np.flip(np.flip(weighted).cumsum())
        bounds = factors * math.exp(EPSILON_ERROR) * prior + deltas
    return float(bounds[np.abs(points) <= LARGEST_LOSS].min()) + DELTA_ERROR


def _privacy_losses(noise_multiplier: float, steps: int, sampling_rate: float) -> DiscretePRV:
    """Compute the distribution of the privacy loss of a composition, discretised.

    Its delta(epsilon - `EPSILON_ERROR`) + `DELTA_ERROR` is an upper bound on the delta(epsilon) of
    the composition (Gopi et al. 2021). The discrete losses are those of opacus' accountant.

    Raises:
        MetricUnavailable: there would be more than `MOST_POINTS`.
    """
    from opacus.accountants.analysis import prv

    loss = prv.PoissonSubsampledGaussianPRV(sampling_rate, noise_multiplier)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Optimal order is the", UserWarning)
        size = math.inf
        if noise_multiplier >= LEAST_NOISE:
            size = prv.compute_safe_domain_size([loss], [steps], EPSILON_ERROR, DELTA_ERROR)
    mesh = EPSILON_ERROR / math.sqrt(steps * math.log(12 / DELTA_ERROR) / 2)
    if not 2 * size / mesh <= MOST_POINTS:
        raise MetricUnavailable(
            f"noise of {noise_multiplier:.3g} times the clipping norm in {steps} steps is too weak "
            "for the accountant of subsampled noise; give sampling_rate=1, whose bound also holds"
        )
    domain = prv.Domain.create_aligned(-size, size, mesh)
    truncated = prv.TruncatedPrivacyRandomVariable(loss, domain.t_min, domain.t_max)
    return prv.compose_heterogeneous([prv.discretize(truncated, domain)], [steps])


@register("reconstruction_bound")
class ReconstructionBound(GaussianNoiseMetric):
    """Upper bound on the probability that any attack reconstructs what the noise protects.

    It holds for attacks that know the network, the protocol, the prior and everything but what the
    noise protects: for ``dp`` the batch of a client as a whole; for ``fedcdp`` with ``sigma`` one
    sample, all others being known. The bound is that of `reconstruction_bound`, whose distribution
    without the unknown is centred in the ball that contains all updates: noise multipliers are
    relative to the radius, half of the sensitivity of `GaussianNoiseMetric`. It is attained for two
    candidates with opposite updates.

    Unavailable if the strength of the noise depends on the data (``fedcdp`` with ``snr``).
    """

    source = "Hayes et al. 2023; Balle et al. 2022"

    prior: float = parameter(
        0.1,
        "probability of success without the update: 1 / n for n equally probable candidates",
        gt=0,
        lt=1,
    )

    def measure(self, comparison: Comparison) -> np.ndarray:
        defense = defense_of(comparison)
        if defense.data_dependent_noise:
            raise MetricUnavailable(
                f"defense {defense}: the strength of the noise depends on the data, which "
                "guarantees nothing; give it by sigma"
            )
        return super().measure(comparison)

    def guarantee(self, multiplier: float) -> float:
        return reconstruction_bound(2 * multiplier, self.prior)
