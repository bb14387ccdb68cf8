"""Properties of updates and batches that do not depend on the attack."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from typing_extensions import override

from gleak.core.registry import register
from gleak.metrics.base import Comparison, MetricSpec, MetricUnavailable

KILOBYTE = 1000


@register("drift")
class Drift(MetricSpec):
    """Relative error of approximating a victim's local steps by one step on its whole batch.

    ||mean of the steps' gradients - g|| / ||g||, where g is the gradient of the whole batch at the
    broadcast parameters: the error that attacks with client_model=one_step neglect. It describes
    the client before its defence and without dropout, for any attack (`gleak.simulation.victims`).
    """

    source = "AGIC Eq. 4"
    per: ClassVar[Literal["sample", "victim"]] = "victim"
    unit: ClassVar[str] = "relative"

    @override
    def applies(self, comparison: Comparison) -> bool:
        """Return True if clients take several local steps."""
        return super().applies(comparison) and comparison.private.drift is not None

    @override
    def measure(self, comparison: Comparison) -> np.ndarray:
        """Return the drift; Shape (V).

        Raises:
            MetricUnavailable: clients take one step, so there is no approximation.
        """
        if comparison.private.drift is None:
            raise MetricUnavailable("clients take one local step, so there is no /drift")
        return np.asarray(comparison.private.drift, dtype=np.float64)


@register("perturbation")
class Perturbation(MetricSpec):
    """Relative change of a victim's update by its defence, averaged over observed rounds.

    ||sent - computed|| / ||computed||, of all parameters as one vector: the transmitted update
    compared with that of the same clients without the defence. For additive noise it is the ratio
    of the norms of noise and signal; for dropped values, the share of the norm they had; without a
    defence it is 0. For defences that choose a norm themselves (``signsgd``, ``dp`` with
    ``scaling=unit``) the computed update is rescaled to that norm, so that direction and noise are
    compared. If the value depends on ``sends``, the numbers of the defence are in the unit of the
    transmitted values.
    """

    source = "ours"
    per: ClassVar[Literal["sample", "victim"]] = "victim"
    unit: ClassVar[str] = "relative"

    @override
    def applies(self, comparison: Comparison) -> bool:
        """Return True if clients were simulated."""
        return super().applies(comparison) and comparison.private.perturbation is not None

    @override
    def measure(self, comparison: Comparison) -> np.ndarray:
        """Return the mean over rounds; Shape (V).

        Raises:
            MetricUnavailable: the undefended updates of captured clients are unknown.
        """
        if comparison.private.perturbation is None:
            raise MetricUnavailable(
                "the undefended updates of captured clients are unknown, so there is no "
                "/perturbation"
            )
        return np.asarray(comparison.private.perturbation, dtype=np.float64).mean(1)


@register("sent_kilobytes")
class SentKilobytes(MetricSpec):
    """Size of one client's update as sent in a round, averaged over observed rounds.

    In 1000 bytes, with codes of equal length: 32 bits per value, the bits that tell the levels
    apart for rounded values and signs, and, for values that are sent alone, their positions as
    numbers or as one bit per value, whichever is less. Random positions and bases are counted as
    sent, although a seed would do. Headers and entropy coding are left out.
    """

    source = "ours"
    per: ClassVar[Literal["sample", "victim"]] = "victim"
    unit: ClassVar[str] = "kB"

    @override
    def applies(self, comparison: Comparison) -> bool:
        """Return True if clients were simulated."""
        return super().applies(comparison) and comparison.private.sent_bytes is not None

    @override
    def measure(self, comparison: Comparison) -> np.ndarray:
        """Return the mean over rounds; Shape (V).

        Raises:
            MetricUnavailable: the encoding that captured clients use is unknown.
        """
        if comparison.private.sent_bytes is None:
            raise MetricUnavailable("captured clients do not tell how they encode what they send")
        return np.asarray(comparison.private.sent_bytes, dtype=np.float64).mean(1) / KILOBYTE


@register("unique_samples")
class UniqueSamples(MetricSpec):
    """Number of samples of a victim's batch whose class occurs once.

    An attack that separates classes, but not samples, can recover only these. The expectation over
    batches of K samples with class probabilities p_n is K sum_n p_n (1 - p_n)^(K-1): 36.97 of 100
    samples of 100 equally frequent classes. It is a property of the batch, for any attack.
    """

    source = "MKOR Eq. 3"
    per: ClassVar[Literal["sample", "victim"]] = "victim"
    unit: ClassVar[str] = "samples"
    better: ClassVar[Literal["higher", "lower"]] = "higher"
    needs_labels: ClassVar[bool] = True

    @override
    def measure(self, comparison: Comparison) -> np.ndarray:
        labels = comparison.truth_labels
        alike = (labels[:, :, None] == labels[:, None, :]).sum(2)
        return np.asarray((alike == 1).sum(1), dtype=np.float64)
