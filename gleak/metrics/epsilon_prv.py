"""Epsilon by privacy loss random variables."""

from __future__ import annotations

from typing_extensions import override

from gleak.core.registry import register
from gleak.metrics.privacy import PrivacyMetric, spent


@register("epsilon_prv")
class EpsilonPrv(PrivacyMetric):
    """Upper bound on epsilon at delta by privacy loss random variables: the accountant of opacus.

    It holds for the neighbours of `gleak.metrics.privacy` and lies about 0.01 above
    the exact epsilon of the Gaussian mechanism. The accountant works with exponentials of
    epsilon, so there is no answer above some 640 (noise below 0.06 at a norm of 1).
    """

    source = "Gopi et al. 2021; opacus"

    @override
    def epsilon(self, multiplier: float) -> float:
        from opacus.accountants import PRVAccountant

        return spent(PRVAccountant(), multiplier, self.delta)
