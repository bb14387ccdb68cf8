"""The epsilon that CPA prints."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from typing_extensions import override

from gleak.core.registry import register
from gleak.metrics.privacy import PrivacyMetric

if TYPE_CHECKING:
    from gleak.metrics.base import Comparison


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
