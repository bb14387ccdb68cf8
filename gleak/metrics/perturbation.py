"""How much a defence changed what clients sent."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from gleak.core.registry import register
from gleak.metrics.base import MetricSpec, MetricUnavailable

if TYPE_CHECKING:
    from gleak.metrics.base import Comparison


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
