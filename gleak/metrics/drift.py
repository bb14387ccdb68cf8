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
