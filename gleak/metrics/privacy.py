"""What differential privacy guarantees for a cell whose defence is `gleak.defenses.dp`."""

from __future__ import annotations

import math
import warnings
from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from gleak.defenses.dp import DifferentialPrivacy
from gleak.metrics.base import MetricSpec, MetricUnavailable
from gleak.registry import parse
from gleak.spec import knob

if TYPE_CHECKING:
    from opacus.accountants import IAccountant

    from gleak.metrics.base import Comparison


class PrivacyMetric(MetricSpec):
    """Base of the metrics that give an epsilon, the same for all victims.

    Other defences leave them out, and nothing is imported for them. What a victim sends in a round
    is one application of the Gaussian mechanism to all the samples of the round, without
    subsampling, and the noise of a victim hides that victim alone. Several rounds compose: R of
    them tell as much as one with noise less by the root of R (Dong et al. 2022, Corollary 3.3).
    """

    per: ClassVar[Literal["sample", "victim"]] = "victim"

    delta: float = knob(
        1e-5, "delta of (epsilon, delta)-privacy", source="CPA Table III", gt=0, lt=1
    )

    def applies(self, comparison: Comparison) -> bool:
        """See `MetricSpec.applies`."""
        return super().applies(comparison) and isinstance(_defense(comparison), DifferentialPrivacy)

    def measure(self, comparison: Comparison) -> np.ndarray:
        """Shape (V).

        Raises:
            MetricUnavailable: no finite epsilon is known; without noise there is none.
        """
        defense, client = _defense(comparison), parse("client", comparison.levels["client"])
        sensitivity = self.sensitivity(defense.norm, client.protocol["batch_size"])
        multiplier = defense.sigma / (sensitivity * math.sqrt(client.rounds))
        epsilon = self.epsilon(multiplier) if multiplier > 0 else math.inf
        if not math.isfinite(epsilon):
            raise MetricUnavailable(f"defense {defense}: epsilon is infinite")
        return np.full(comparison.victims, epsilon)

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


def _defense(comparison: Comparison) -> Any:
    return parse("defense", comparison.levels.get("defense", "none"))


def spent(accountant: IAccountant, multiplier: float, delta: float, **settings: Any) -> float:
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
