"""Epsilon of defences that add Gaussian noise to bounded values."""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from typing_extensions import override

from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.metrics.base import MetricUnavailable
from gleak.metrics.gaussian_noise import GaussianNoiseMetric

if TYPE_CHECKING:
    from opacus.accountants import IAccountant

    from gleak.metrics.base import Comparison

ORDERS = 1 + np.geomspace(1e-8, 1e8, 2001)
"""Dense around the best order, which is close to 1 for weak noise: the smallest default order of
opacus is 1.1, which overestimates epsilon by up to a tenth."""


class EpsilonMetric(GaussianNoiseMetric):
    """Base of the metrics that compute an epsilon, with the neighbours of `GaussianNoiseMetric`."""

    delta: float = parameter(
        1e-5, "delta of (epsilon, delta)-privacy", source="CPA Table III", gt=0, lt=1
    )


def accountant_epsilon(
    accountant: IAccountant, multiplier: float, delta: float, **settings: Any
) -> float:
    """Compute epsilon with an accountant of opacus for one step on all samples; at least 0.

    Args:
        accountant: accountant without a history.
        multiplier: standard deviation of the noise over the sensitivity.
        delta: delta of (epsilon, delta)-privacy.
        **settings: arguments of its ``get_epsilon``.

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

    @override
    def applies(self, comparison: Comparison) -> bool:
        return super().applies(comparison) and comparison.noise_multipliers is None

    @override
    def sensitivity(self, norm: float, batch_size: int) -> float:
        """Return the sensitivity that the paper assumes, that of a mean of clipped gradients."""
        return norm / batch_size

    @override
    def guarantee(self, multiplier: float) -> float:
        return math.sqrt(2 * math.log(1.25 / self.delta)) / multiplier


@register("epsilon_prv")
class EpsilonPrv(EpsilonMetric):
    """Upper bound on epsilon at delta by privacy loss random variables: the accountant of opacus.

    It uses the neighbours of `GaussianNoiseMetric` and lies about 0.01 above the exact epsilon of
    the Gaussian mechanism. The accountant computes exponentials of epsilon, so it fails above about
    640 (noise below 0.06 at a norm of 1).
    """

    source = "Gopi et al. 2021; opacus"

    @override
    def guarantee(self, multiplier: float) -> float:
        from opacus.accountants import PRVAccountant

        return accountant_epsilon(PRVAccountant(), multiplier, self.delta)


@register("epsilon_rdp")
class EpsilonRdp(EpsilonMetric):
    """Upper bound on epsilon at delta by Renyi differential privacy: the accountant of opacus.

    It uses the neighbours of `GaussianNoiseMetric` and works for arbitrarily weak noise. The exact
    epsilon of the Gaussian mechanism is 0.5% less for sigma = 0.01 and 7% less for 1, at a norm of
    1.
    """

    source = "Mironov 2017; Balle et al. 2020, Theorem 21; opacus"

    @override
    def guarantee(self, multiplier: float) -> float:
        from opacus.accountants import RDPAccountant

        return accountant_epsilon(RDPAccountant(), multiplier, self.delta, alphas=ORDERS)
