"""Properties of updates and batches that do not depend on the attack."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from gleak.core.registry import register
from gleak.metrics.base import NOT_NEGATIVE, Comparison, MetricSpec


class UpdateMetric(MetricSpec):
    """Base of the metrics that are a ``field`` of the truth, averaged over observed rounds."""

    per = "victim"
    limits = NOT_NEGATIVE
    field: ClassVar[str]

    def applies(self, comparison: Comparison) -> bool:
        """Return True if the field is known: not of captured clients."""
        return super().applies(comparison) and getattr(comparison.private, self.field) is not None

    def measure(self, comparison: Comparison) -> np.ndarray:
        values = np.asarray(getattr(comparison.private, self.field), dtype=np.float64)
        return np.asarray(values.reshape(comparison.victims, -1).mean(1))


@register("drift")
class Drift(UpdateMetric):
    """Relative error of approximating a victim's local steps by one step on its whole batch.

    ||mean of the steps' gradients - g|| / ||g||, where g is the gradient of the whole batch at the
    broadcast parameters: the error that attacks with client_model=one_step neglect. It describes
    the client before its defence and without dropout, for any attack (`gleak.simulation.victims`).
    Clients that take one local step have none.
    """

    source = "AGIC Eq. 4"
    unit = "relative"
    field = "drift"


@register("epoch_change")
class EpochChange(UpdateMetric):
    """Relative distance of a sample's updates in the first and in the last epoch.

    ||u' - u|| / ||u||, of all parameters as one vector, where u and u' are the first and the last
    update that used the sample: near zero, a later epoch tells what the first one did. The mean
    over a victim's samples, for any attack.
    """

    source = "ours"
    unit = "relative"
    field = "epoch_change"


@register("perturbation")
class Perturbation(UpdateMetric):
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
    unit = "relative"
    field = "perturbation"


@register("sent_kilobytes")
class SentKilobytes(UpdateMetric):
    """Size of one client's update as sent in a round, averaged over observed rounds.

    In 1000 bytes, with codes of equal length: 32 bits per value, the bits that tell the levels
    apart for rounded values and signs, and, for values that are sent alone, their positions as
    numbers or as one bit per value, whichever is less. Random positions and bases are counted as
    sent, although a seed would do. Headers and entropy coding are left out.
    """

    source = "ours"
    unit = "kB"
    field = "sent_bytes"

    def measure(self, comparison: Comparison) -> np.ndarray:
        return super().measure(comparison) / 1000


@register("unique_samples")
class UniqueSamples(MetricSpec):
    """Number of samples of a victim's batch whose class occurs once.

    An attack that separates classes, but not samples, can recover only these. The expectation over
    batches of K samples with class probabilities p_n is K sum_n p_n (1 - p_n)^(K-1): 36.97 of 100
    samples of 100 equally frequent classes. It is a property of the batch, for any attack.
    """

    source = "MKOR Eq. 3"
    per = "victim"
    unit = "samples"
    better = "higher"
    needs_labels = True

    def measure(self, comparison: Comparison) -> np.ndarray:
        labels = comparison.truth_labels
        alike = (labels[:, :, None] == labels[:, None, :]).sum(2)
        return np.asarray((alike == 1).sum(1), dtype=np.float64)
