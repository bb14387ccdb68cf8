"""What the books of an attack say: of its search per victim, and of the whole job."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from gleak.core.registry import register
from gleak.metrics.base import MetricSpec, MetricUnavailable

if TYPE_CHECKING:
    from gleak.artifacts.reconstruction import Reconstruction
    from gleak.metrics.base import Comparison


class SearchMetric(MetricSpec):
    """Base of the metrics that are a field of the reconstruction of the same name."""

    per: ClassVar[Literal["sample", "victim"]] = "victim"

    def measure(self, comparison: Comparison) -> np.ndarray:
        """Shape (V).

        Raises:
            MetricUnavailable: the attack left the field out, or there was no attack.
        """
        values = getattr(_attacked(comparison), self.name)
        if values is None:
            raise MetricUnavailable(
                f"the attack does not iterate or keeps no such record: there is no /{self.name}"
            )
        return np.asarray(values, dtype=np.float64)


def job_record(comparison: Comparison, key: str) -> float:
    """A number that the attack's job left in ``provenance.json``.

    Raises:
        MetricUnavailable: no such file or key beside the reconstruction.
    """
    _attacked(comparison)
    if key not in comparison.provenance:
        raise MetricUnavailable(f"no {key!r} in a provenance.json beside the reconstruction")
    return float(comparison.provenance[key])


def _attacked(comparison: Comparison) -> Reconstruction:
    if comparison.reconstruction is None:
        raise MetricUnavailable("the truth control does not iterate: no attack was run")
    return comparison.reconstruction


@register("iterations")
class Iterations(SearchMetric):
    """Iterations spent on a victim, those of its restarts included."""

    unit: ClassVar[str] = "iterations"


@register("evaluations")
class Evaluations(SearchMetric):
    """Values-with-gradients of the attack's objective computed for a victim."""

    unit: ClassVar[str] = "evaluations"


@register("restarts")
class Restarts(SearchMetric):
    """How often a victim's search diverged or stalled and began afresh."""

    unit: ClassVar[str] = "restarts"


@register("objective")
class Objective(SearchMetric):
    """Value of the attack's objective at the reconstruction: gradient distance plus priors.

    Its scale is the attack's; values of different attacks are not comparable.
    """


@register("seconds")
class Seconds(MetricSpec):
    """CPU seconds of the attack's job (``cpu_seconds`` in its provenance) over its victims.

    Victims run as one batch, so each is given an equal share. CPU time of all threads, not wall
    time: it depends less on what else the machine is doing.
    """

    per: ClassVar[Literal["sample", "victim"]] = "victim"
    unit: ClassVar[str] = "CPU s"

    def measure(self, comparison: Comparison) -> np.ndarray:
        """Shape (V), in CPU seconds, the same for all victims.

        Raises:
            MetricUnavailable: the job left no record of it.
        """
        share = job_record(comparison, "cpu_seconds") / comparison.victims
        return np.full(comparison.victims, share)


@register("peak_memory")
class PeakMemory(MetricSpec):
    """Largest memory the attack's job held (``peak_memory_mb`` in its provenance).

    The whole job's, all victims together: it cannot be told apart, so each victim bears it.
    """

    per: ClassVar[Literal["sample", "victim"]] = "victim"
    unit: ClassVar[str] = "MB"

    def measure(self, comparison: Comparison) -> np.ndarray:
        """Shape (V), in megabytes, the same for all victims.

        Raises:
            MetricUnavailable: the job left no record of it.
        """
        return np.full(comparison.victims, job_record(comparison, "peak_memory_mb"))
