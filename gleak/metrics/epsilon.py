"""Epsilon of defences that add Gaussian noise to bounded values.

A noise multiplier is the standard deviation of the noise over the sensitivity: the largest change
of the protected value, in the L2 norm, between two neighbouring batches of a client.
"""

from __future__ import annotations

import math
import warnings
from abc import abstractmethod
from typing import Any

import numpy as np

from gleak.core.registry import parse, register
from gleak.core.spec import parameter
from gleak.defenses.differential_privacy import DifferentialPrivacy
from gleak.metrics.base import Comparison, MetricSpec, MetricUnavailable


class GaussianNoiseMetric(MetricSpec):
    """Base of the metrics that compute a guarantee from the noise multiplier of each victim.

    They do not apply to other defences, and import nothing for them. The noise of a victim protects
    that victim alone, and there is no subsampling.

    With a `DefenseSpec.mechanism` (``dp``, ``flower_local_dp``, ``flower_central_dp``) an update of
    one round is one application of the Gaussian mechanism to all samples of a client in the round,
    and neighbours are any two batches: the multiplier is its deviation over 2 norm, half of the
    ``noise_multiplier`` of ``dp`` in either unit. For a defence
    with noise in the local steps (``fedcdp``) each step is one application, neighbours are batches
    that differ in one sample, and the multiplier of every step was recorded by the simulation
    (`gleak.artifacts.private`). If that noise depends on the data (``snr``), epsilon is that of
    noise of the recorded strength, which is no guarantee. Noise on unbounded updates (``gaussian``,
    ``laplace``) has no epsilon, in particular noise relative to the update.

    Several applications compose: multipliers z_t are equivalent to one application with
    1 / sqrt(sum_t z_t^-2) (Dong et al. 2022, Corollary 3.3).
    """

    per = "victim"

    def applies(self, comparison: Comparison) -> bool:
        private = defense_of(comparison).mechanism is not None
        noisy_steps = comparison.private.noise_multipliers is not None
        return super().applies(comparison) and (private or noisy_steps)

    def measure(self, comparison: Comparison) -> np.ndarray:
        """Compute the guarantee of the composition of all updates of each victim; Shape (V).

        Raises:
            MetricUnavailable: there is none (no noise), or it cannot be computed.
        """
        defense, client = defense_of(comparison), parse("client", comparison.levels["client"])
        applications = comparison.private.noise_multipliers
        if applications is not None:
            times = client.uses_per_sample
        else:
            mechanism, times = defense.mechanism, client.rounds
            sensitivity = self.sensitivity(mechanism.norm, client.protocol.batch_size)
            applications = np.full((comparison.victims, times), mechanism.deviation / sensitivity)
        composed = compose_multipliers(applications, times)
        multipliers, indices = np.unique(composed, return_inverse=True)
        values = [self.guarantee(each) if each > 0 else math.inf for each in multipliers.tolist()]
        if not np.isfinite(values).all():
            raise MetricUnavailable(f"defense {defense}: epsilon is infinite")
        return np.array(values)[indices]

    def sensitivity(self, norm: float, batch_size: int) -> float:
        """Return the largest L2 distance between neighbours' updates before the noise.

        Neighbours are any two batches of one client. Both updates lie in the ball of radius
        ``norm``, so the distance is at most twice that. Batches that differ in one sample are no
        closer in general: if samples are not clipped individually, the gradient of one can reverse
        that of the batch, and scaling then moves it from one side of the ball to the other.
        """
        return 2 * norm

    @abstractmethod
    def guarantee(self, multiplier: float) -> float:
        """Compute the guarantee of one application of the Gaussian mechanism.

        Raises:
            MetricUnavailable: it cannot be computed for this noise multiplier.
        """


def compose_multipliers(multipliers: np.ndarray, times: int) -> np.ndarray:
    """Compute the noise multiplier of the composition of the least noisy applications.

    Of S applications, Shape (V, S), a given sample is used ``times``. Shape (V); 0 if one of them
    has no noise.
    """
    weakest = np.sort(np.asarray(multipliers, dtype=np.float64), axis=1)[:, :times]
    with np.errstate(divide="ignore", over="ignore"):
        return np.asarray(1 / np.linalg.norm(1 / weakest, axis=1))


def defense_of(comparison: Comparison) -> Any:
    return parse("defense", comparison.levels.get("defense", "none"))


ORDERS = 1 + np.geomspace(1e-8, 1e8, 2001)
"""Dense around the best order, which is close to 1 for weak noise: the smallest default order of
opacus is 1.1, which overestimates epsilon by up to a tenth."""


class EpsilonMetric(GaussianNoiseMetric):
    """Base of the metrics that compute an epsilon, with the neighbours of `GaussianNoiseMetric`."""

    delta: float = parameter(
        1e-5, "delta of (epsilon, delta)-privacy", source="CPA Table III", gt=0, lt=1
    )


def accountant_epsilon(accountant: Any, multiplier: float, delta: float, **settings: Any) -> float:
    """Compute epsilon with a new accountant of opacus for one step on all samples; at least 0.

    Raises:
        MetricUnavailable: it fails, or its numbers exceed the range of double precision, in which
            case it would return a wrong result.
    """
    accountant.step(noise_multiplier=multiplier, sample_rate=1)
    with warnings.catch_warnings(), np.errstate(divide="ignore", over="raise", invalid="raise"):
        # Every Renyi order gives a bound; the outermost one is merely less tight.
        warnings.filterwarnings("ignore", "Optimal order is the", UserWarning)
        try:
            return max(0.0, float(accountant.get_epsilon(delta, **settings)))
        except (ArithmeticError, RuntimeError, ValueError) as error:
            raise MetricUnavailable(
                f"{type(accountant).__name__} fails for noise of {multiplier:.3g} times the "
                f"sensitivity ({error})"
            ) from None


@register("epsilon_paper")
class EpsilonPaper(EpsilonMetric):
    """Epsilon printed in CPA's Table III: a formula, not a guarantee.

    The printed numbers are those of the classical Gaussian mechanism, sqrt(2 ln(1.25 / delta))
    times sensitivity over sigma, with a sensitivity of one over the batch size. This treats the
    scaled gradient as a mean of clipped per-sample gradients, but no sample is clipped; and the
    theorem holds for epsilon below 1 only. The printed 606.60 at sigma = 0.001 is 605.60 by this
    formula, consistent with the printed 6056.00 and 60.56.
    """

    source = "CPA Table III; Dwork and Roth 2014, Theorem A.1"

    def applies(self, comparison: Comparison) -> bool:
        return super().applies(comparison) and isinstance(
            defense_of(comparison), DifferentialPrivacy
        )

    def sensitivity(self, norm: float, batch_size: int) -> float:
        """Return the sensitivity that the paper assumes, that of a mean of clipped gradients."""
        return norm / batch_size

    def guarantee(self, multiplier: float) -> float:
        return math.sqrt(2 * math.log(1.25 / self.delta)) / multiplier


@register("epsilon_prv")
class EpsilonPrv(EpsilonMetric):
    """Upper bound on epsilon at delta by privacy loss random variables: the accountant of opacus.

    It lies about 0.01 above the exact epsilon of the Gaussian mechanism. The accountant computes
    exponentials of epsilon, so it fails above about 640 (noise below 0.06 at a norm of 1).
    """

    source = "Gopi et al. 2021; opacus"

    def guarantee(self, multiplier: float) -> float:
        from opacus.accountants import PRVAccountant

        return accountant_epsilon(PRVAccountant(), multiplier, self.delta)


@register("epsilon_stated")
class EpsilonStated(MetricSpec):
    """Epsilon that a federated framework states for its own mechanism, summed over the rounds.

    It is what the framework's parameters or its accountant say (`DefenseSpec.stated_epsilon`),
    under its own assumptions: for ``flower_local_dp`` at its delta in each round and for the
    sensitivity that its user gives, for ``flare_svt`` with delta 0. It proves nothing; the other
    metrics of this kind compute guarantees, where there are any.
    """

    source = "NVIDIA FLARE 2.9, SVTPrivacy; Flower 1.40, LocalDpMod"
    per = "victim"

    def applies(self, comparison: Comparison) -> bool:
        return super().applies(comparison) and defense_of(comparison).stated_epsilon(1) is not None

    def measure(self, comparison: Comparison) -> np.ndarray:
        """Compute the sum over all rounds of a client; Shape (V).

        Raises:
            MetricUnavailable: the dataset is not known, so the size of the network is not.
        """
        dataset, levels = comparison.dataset, comparison.levels
        if dataset is None:
            raise MetricUnavailable("the dataset is not known, so the size of the network is not")
        size = parse("model", levels["model"]).parameters(dataset.shape, dataset.classes)
        one = defense_of(comparison).stated_epsilon(size)
        return np.full(comparison.victims, one * parse("client", levels["client"]).rounds)


@register("epsilon_rdp")
class EpsilonRdp(EpsilonMetric):
    """Upper bound on epsilon at delta by Renyi differential privacy: the accountant of opacus.

    It works for arbitrarily weak noise. The exact epsilon of the Gaussian mechanism is 0.5% less
    for sigma = 0.01 and 7% less for 1, at a norm of 1.
    """

    source = "Mironov 2017; Balle et al. 2020, Theorem 21; opacus"

    def guarantee(self, multiplier: float) -> float:
        from opacus.accountants import RDPAccountant

        return accountant_epsilon(RDPAccountant(), multiplier, self.delta, alphas=ORDERS)
