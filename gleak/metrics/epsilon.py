"""What differential privacy guarantees where a defence adds Gaussian noise to bounded values.

A noise multiplier is the standard deviation of the noise over the sensitivity: how far what it
hides can move, in the L2 norm, between two neighbouring batches of a client.
"""

from __future__ import annotations

import math
import warnings
from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from typing_extensions import override

from gleak.core.registry import parse, register
from gleak.core.spec import parameter
from gleak.defenses.differential_privacy import DifferentialPrivacy
from gleak.metrics.base import MetricSpec, MetricUnavailable

if TYPE_CHECKING:
    from opacus.accountants import IAccountant

    from gleak.metrics.base import Comparison

ORDERS = 1 + np.geomspace(1e-8, 1e8, 2001)
"""Dense enough around the best order, which is nearly 1 where noise is weak: among the orders of
opacus itself the least is 1.1, which costs up to a tenth of epsilon."""


class PrivacyMetric(MetricSpec):
    """Base of the metrics that give an epsilon.

    Other defences leave them out, and nothing is imported for them. The noise of a victim hides
    that victim alone, and there is no subsampling.

    Of `dp` what a victim sends in a round is one application of the Gaussian
    mechanism to all the samples of the round, and neighbours are any two batches: the multiplier is
    sigma over 2 norm, or half of ``noise_multiplier``, in whatever unit they are. Of a defence with
    noise in the local steps (`fedcdp`) each step is one, neighbours are batches that
    differ in one sample, and the multiplier of every step was noted when the clients were simulated
    (`gleak.artifacts.private`). Where that noise follows the data (``snr``), epsilon is that of
    noise of the strength it had, which is no guarantee. Noise on updates that nothing bounds
    (`gaussian`, `laplace`) has no epsilon, least of all noise relative to the update.

    Several applications compose: with multipliers z_t they tell as much as one with
    1 / sqrt(sum_t z_t^-2) (Dong et al. 2022, Corollary 3.3).
    """

    per: ClassVar[Literal["sample", "victim"]] = "victim"

    delta: float = parameter(
        1e-5, "delta of (epsilon, delta)-privacy", source="CPA Table III", gt=0, lt=1
    )

    @override
    def applies(self, comparison: Comparison) -> bool:
        private = isinstance(_defense(comparison), DifferentialPrivacy)
        noisy_steps = comparison.noise_multipliers is not None
        return super().applies(comparison) and (private or noisy_steps)

    def measure(self, comparison: Comparison) -> np.ndarray:
        """Shape (V).

        Raises:
            MetricUnavailable: no finite epsilon is known; without noise there is none.
        """
        multipliers, places = np.unique(self._multipliers(comparison), return_inverse=True)
        epsilons = [self.epsilon(each) if each > 0 else math.inf for each in multipliers.tolist()]
        if not np.isfinite(epsilons).all():
            raise MetricUnavailable(f"defense {_defense(comparison)}: epsilon is infinite")
        return np.array(epsilons)[places]

    def _multipliers(self, comparison: Comparison) -> np.ndarray:
        """Of each victim, all that it sends taken as one application; Shape (V)."""
        defense, client = _defense(comparison), parse("client", comparison.levels["client"])
        if comparison.noise_multipliers is not None:
            return compose_multipliers(
                comparison.noise_multipliers, round(client.gradients_per_sample)
            )
        sensitivity = self.sensitivity(defense.norm, client.protocol["batch_size"])
        each = np.full((comparison.victims, client.rounds), defense.deviation / sensitivity)
        return compose_multipliers(each, client.rounds)

    def sensitivity(self, norm: float, batch_size: int) -> float:
        """How far the update before the noise can move between neighbours, in the L2 norm.

        Neighbours are any two batches of one client. Both updates lie in the ball of radius
        ``norm``, hence twice that. Two batches that differ in one sample are no closer in general:
        where samples are not clipped one by one, the gradient of one can turn that of the batch
        around, and scaling then moves it from one side of the ball to the other.
        """
        return 2 * norm

    @abstractmethod
    def epsilon(self, multiplier: float) -> float:
        """The epsilon of one application of the Gaussian mechanism at ``delta``.

        Args:
            multiplier: standard deviation of the noise over the sensitivity.

        Raises:
            MetricUnavailable: it cannot be computed for such a multiplier.
        """


def compose_multipliers(multipliers: np.ndarray, times: int) -> np.ndarray:
    """The noise multiplier of one application that tells as much as the most telling of several.

    Args:
        multipliers: of all applications, Shape (V, S).
        times: in how many of them a sample has a part; which, is not asked.

    Returns:
        Shape (V); 0 where one of them has no noise.
    """
    weakest = np.sort(np.asarray(multipliers, dtype=np.float64), axis=1)[:, :times]
    with np.errstate(divide="ignore", over="ignore"):
        return np.asarray(1 / np.linalg.norm(1 / weakest, axis=1))


def _defense(comparison: Comparison) -> Any:
    return parse("defense", comparison.levels.get("defense", "none"))


def accountant_epsilon(
    accountant: IAccountant, multiplier: float, delta: float, **settings: Any
) -> float:
    """The epsilon an accountant of opacus gives for one step on all samples; at least 0.

    Args:
        accountant: without a history.
        multiplier: standard deviation of the noise over the sensitivity.
        delta: of (epsilon, delta)-privacy.
        **settings: of its ``get_epsilon``.

    Raises:
        MetricUnavailable: it fails, or its numbers leave the range of double precision, where it
            would go on with infinities to a wrong answer.
    """
    accountant.step(noise_multiplier=multiplier, sample_rate=1)
    with warnings.catch_warnings(), np.errstate(divide="ignore", over="raise", invalid="raise"):
        # Any Renyi order gives a bound; the outermost one is only less tight than the best.
        warnings.filterwarnings("ignore", "Optimal order is the", UserWarning)
        try:
            return max(0.0, float(accountant.get_epsilon(delta, **settings)))
        except (ArithmeticError, RuntimeError, ValueError) as error:
            raise MetricUnavailable(
                f"{type(accountant).__name__} has no answer for noise of {multiplier:.3g} times "
                f"the sensitivity ({error})"
            ) from None


@register("epsilon_paper")
class EpsilonPaper(PrivacyMetric):
    """The epsilon of CPA's Table III: a formula, not a guarantee.

    The paper gives numbers alone; they are those of the classical Gaussian mechanism,
    sqrt(2 ln(1.25 / delta)) times sensitivity over sigma, with a sensitivity of one over the batch
    size. That takes the scaled gradient for a mean of clipped gradients of samples, and no sample
    is clipped; and the theorem is proven for epsilon below 1 only. Its 606.60 at sigma = 0.001 is
    605.60 by this formula, as its 6056.00 and 60.56 are.
    """

    source = "CPA Table III; Dwork and Roth 2014, Theorem A.1"

    @override
    def applies(self, comparison: Comparison) -> bool:
        """The paper has one defence, `dp`."""
        return super().applies(comparison) and comparison.noise_multipliers is None

    def sensitivity(self, norm: float, batch_size: int) -> float:
        """What the paper's numbers take it for: one sample's share of a mean of clipped ones."""
        return norm / batch_size

    @override
    def epsilon(self, multiplier: float) -> float:
        return math.sqrt(2 * math.log(1.25 / self.delta)) / multiplier


@register("epsilon_prv")
class EpsilonPrv(PrivacyMetric):
    """Upper bound on epsilon at delta by privacy loss random variables: the accountant of opacus.

    It holds for the neighbours of `gleak.metrics.epsilon` and lies about 0.01 above
    the exact epsilon of the Gaussian mechanism. The accountant works with exponentials of
    epsilon, so there is no answer above some 640 (noise below 0.06 at a norm of 1).
    """

    source = "Gopi et al. 2021; opacus"

    @override
    def epsilon(self, multiplier: float) -> float:
        from opacus.accountants import PRVAccountant

        return accountant_epsilon(PRVAccountant(), multiplier, self.delta)


@register("epsilon_rdp")
class EpsilonRdp(PrivacyMetric):
    """Upper bound on epsilon at delta by Renyi differential privacy: the accountant of opacus.

    It holds for the neighbours of `gleak.metrics.epsilon`, however weak the noise. The
    exact epsilon of the Gaussian mechanism is 0.5% less for sigma = 0.01 and 7% less for 1, at a
    norm of 1.
    """

    source = "Mironov 2017; Balle et al. 2020, Theorem 21; opacus"

    @override
    def epsilon(self, multiplier: float) -> float:
        from opacus.accountants import RDPAccountant

        return accountant_epsilon(RDPAccountant(), multiplier, self.delta, alphas=ORDERS)
