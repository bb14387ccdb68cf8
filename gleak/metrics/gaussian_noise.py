"""Noise multipliers of defences that add Gaussian noise to bounded values.

A noise multiplier is the standard deviation of the noise over the sensitivity: the largest change
of the protected value, in the L2 norm, between two neighbouring batches of a client.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from typing_extensions import override

from gleak.core.registry import parse
from gleak.defenses.differential_privacy import DifferentialPrivacy
from gleak.metrics.base import MetricSpec, MetricUnavailable

if TYPE_CHECKING:
    from gleak.metrics.base import Comparison


class GaussianNoiseMetric(MetricSpec):
    """Base of the metrics that compute a guarantee from the noise multiplier of each victim.

    They do not apply to other defences, and import nothing for them. The noise of a victim protects
    that victim alone, and there is no subsampling.

    With `gleak.defenses.differential_privacy` an update of one round is one application of the
    Gaussian mechanism to all samples of the round, and neighbours are any two batches: the
    multiplier is sigma over 2 norm, or half of ``noise_multiplier``, in either unit. For a defence
    with noise in the local steps (``fedcdp``) each step is one application, neighbours are batches
    that differ in one sample, and the multiplier of every step was recorded by the simulation
    (`gleak.artifacts.private`). If that noise depends on the data (``snr``), epsilon is that of
    noise of the recorded strength, which is no guarantee. Noise on unbounded updates (``gaussian``,
    ``laplace``) has no epsilon, in particular noise relative to the update.

    Several applications compose: multipliers z_t are equivalent to one application with
    1 / sqrt(sum_t z_t^-2) (Dong et al. 2022, Corollary 3.3).
    """

    per: ClassVar[Literal["sample", "victim"]] = "victim"

    @override
    def applies(self, comparison: Comparison) -> bool:
        private = isinstance(defense_of(comparison), DifferentialPrivacy)
        noisy_steps = comparison.noise_multipliers is not None
        return super().applies(comparison) and (private or noisy_steps)

    @override
    def measure(self, comparison: Comparison) -> np.ndarray:
        """Compute the guarantee of each victim; Shape (V).

        Raises:
            MetricUnavailable: there is none (no noise), or it cannot be computed.
        """
        multipliers, indices = np.unique(self._multipliers(comparison), return_inverse=True)
        values = [self.guarantee(each) if each > 0 else math.inf for each in multipliers.tolist()]
        if not np.isfinite(values).all():
            raise MetricUnavailable(f"defense {defense_of(comparison)}: epsilon is infinite")
        return np.array(values)[indices]

    def _multipliers(self, comparison: Comparison) -> np.ndarray:
        """Compute the multiplier of the composition of all updates of each victim; Shape (V)."""
        defense, client = defense_of(comparison), parse("client", comparison.levels["client"])
        if comparison.noise_multipliers is not None:
            return compose_multipliers(
                comparison.noise_multipliers, round(client.gradients_per_sample)
            )
        sensitivity = self.sensitivity(defense.norm, client.protocol.batch_size)
        each = np.full((comparison.victims, client.rounds), defense.deviation / sensitivity)
        return compose_multipliers(each, client.rounds)

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

        Args:
            multiplier: standard deviation of the noise over the sensitivity.

        Raises:
            MetricUnavailable: it cannot be computed for this multiplier.
        """


def compose_multipliers(multipliers: np.ndarray, times: int) -> np.ndarray:
    """Compute the noise multiplier of the composition of the least noisy applications.

    Args:
        multipliers: of all applications, Shape (V, S).
        times: number of applications that use a given sample.

    Returns:
        Shape (V); 0 if one of them has no noise.
    """
    weakest = np.sort(np.asarray(multipliers, dtype=np.float64), axis=1)[:, :times]
    with np.errstate(divide="ignore", over="ignore"):
        return np.asarray(1 / np.linalg.norm(1 / weakest, axis=1))


def defense_of(comparison: Comparison) -> Any:
    """Return the spec of the defence of a cell."""
    return parse("defense", comparison.levels.get("defense", "none"))
