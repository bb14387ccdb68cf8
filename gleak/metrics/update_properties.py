"""How far local steps are from the one-batch approximation."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from gleak.core.registry import register
from gleak.metrics.base import MetricSpec, MetricUnavailable

if TYPE_CHECKING:
    from gleak.metrics.base import Comparison


@register("drift")
class Drift(MetricSpec):
    """Relative error of a victim's local steps taken for one step on its whole batch.

    ||mean of the steps' gradients - g|| / ||g||, where g is the gradient of the whole batch at the
    broadcast parameters: what attacks with client_model=one_step overlook. It is said of the client
    before its defence and without dropout, whatever an attack makes of it
    (`gleak.simulation.drift`).
    """

    source = "AGIC Eq. 4"
    per: ClassVar[Literal["sample", "victim"]] = "victim"
    unit: ClassVar[str] = "relative"

    def applies(self, comparison: Comparison) -> bool:
        """Where clients take several local steps."""
        return super().applies(comparison) and comparison.drift is not None

    def measure(self, comparison: Comparison) -> np.ndarray:
        """Shape (V).

        Raises:
            MetricUnavailable: clients take one step, which is no approximation.
        """
        if comparison.drift is None:
            raise MetricUnavailable("clients take one local step, so there is no /drift")
        return np.asarray(comparison.drift, dtype=np.float64)


@register("perturbation")
class Perturbation(MetricSpec):
    """Relative change of a victim's update by its defence, the mean over observed rounds.

    ||sent - computed|| / ||computed||, of all parameters as one vector: what the server sees beside
    what the same clients compute without the defence. Of additive noise it is the noise-to-signal
    ratio of lengths; of values left out, the share of the length that they had; without a defence
    it is 0. Of defences that choose a length themselves (``signsgd``, ``dp`` with ``scaling=unit``)
    what was computed is taken at that length, so that they are compared by direction and noise. A
    number that depends on ``sends`` tells of a defence whose numbers are in the unit of what is
    sent.
    """

    source = "ours"
    per: ClassVar[Literal["sample", "victim"]] = "victim"
    unit: ClassVar[str] = "relative"

    def applies(self, comparison: Comparison) -> bool:
        """Where clients were simulated."""
        return super().applies(comparison) and comparison.perturbation is not None

    def measure(self, comparison: Comparison) -> np.ndarray:
        """Shape (V).

        Raises:
            MetricUnavailable: what captured clients computed is not known.
        """
        if comparison.perturbation is None:
            raise MetricUnavailable(
                "of captured clients it is not known what they computed, so there is no "
                "/perturbation"
            )
        return np.asarray(comparison.perturbation, dtype=np.float64).mean(1)


@register("unique_samples")
class UniqueSamples(MetricSpec):
    """How many samples of a victim's batch are the only ones of their class.

    An attack that tells classes apart, and not samples, can find these alone. Its expectation over
    batches of K samples whose classes n have the probabilities p_n is K sum_n p_n (1 - p_n)^(K-1):
    36.97 of 100 samples of 100 equally frequent classes. It is said of the batch, whatever an
    attack makes of it.
    """

    source = "MKOR Eq. 3"
    per: ClassVar[Literal["sample", "victim"]] = "victim"
    unit: ClassVar[str] = "samples"
    better: ClassVar[Literal["higher", "lower"]] = "higher"

    def measure(self, comparison: Comparison) -> np.ndarray:
        """Shape (V), whole numbers."""
        labels = comparison.truth_labels
        alike = (labels[:, :, None] == labels[:, None, :]).sum(2)
        return np.asarray((alike == 1).sum(1), dtype=np.float64)
