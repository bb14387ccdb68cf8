"""Costs of an attack: of its search per victim, and of the whole job."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from typing_extensions import override

from gleak.artifacts.reconstruction import Reconstruction
from gleak.core.registry import register
from gleak.metrics.base import Comparison, MetricSpec, MetricUnavailable
from gleak.runtime.provenance import CPU


class SearchMetric(MetricSpec):
    """Base of the metrics that are the reconstruction's field of the same name."""

    per: ClassVar[Literal["sample", "victim"]] = "victim"

    @override
    def measure(self, comparison: Comparison) -> np.ndarray:
        """Return the values of the field; Shape (V).

        Raises:
            MetricUnavailable: the attack does not record the field, or there was no attack.
        """
        values = getattr(_attacked(comparison), self.name)
        if values is None:
            raise MetricUnavailable(
                f"the attack does not iterate or does not record it: there is no /{self.name}"
            )
        return np.asarray(values, dtype=np.float64)


def job_record(comparison: Comparison, key: str) -> float:
    """Return a number from the ``provenance.json`` of the attack's job.

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
    """Number of iterations for a victim, including those of restarts."""

    unit: ClassVar[str] = "iterations"


@register("evaluations")
class Evaluations(SearchMetric):
    """Number of evaluations of the attack's objective and its gradient for a victim."""

    unit: ClassVar[str] = "evaluations"


@register("restarts")
class Restarts(SearchMetric):
    """Number of restarts of a victim's search after divergence or stagnation."""

    unit: ClassVar[str] = "restarts"


@register("objective")
class Objective(SearchMetric):
    """Value of the attack's objective at the reconstruction: gradient distance plus priors.

    The scale depends on the attack; values of different attacks are not comparable.
    """


@register("seconds")
class Seconds(MetricSpec):
    """Seconds of computing of the attack's job per victim.

    On a CPU these are the CPU seconds of all threads (``cpu_seconds`` in its provenance), which
    depend less on the machine's other load than wall time does. On a GPU they are seconds of wall
    time until the GPU has finished (``seconds``), since the CPU only launches the work. Victims run
    as one batch, so each is assigned an equal share.
    """

    per: ClassVar[Literal["sample", "victim"]] = "victim"
    unit: ClassVar[str] = "s"

    @override
    def measure(self, comparison: Comparison) -> np.ndarray:
        """Return the seconds, the same for all victims; Shape (V).

        Raises:
            MetricUnavailable: the job did not record them.
        """
        on_cpu = comparison.provenance.get("device", CPU) == CPU
        share = job_record(comparison, "cpu_seconds" if on_cpu else "seconds") / comparison.victims
        return np.full(comparison.victims, share)


@register("peak_memory")
class PeakMemory(MetricSpec):
    """Peak memory of the attack's job (``peak_memory_mb`` in its provenance).

    The job runs all victims together, so every victim is assigned the total.
    """

    per: ClassVar[Literal["sample", "victim"]] = "victim"
    unit: ClassVar[str] = "MB"

    @override
    def measure(self, comparison: Comparison) -> np.ndarray:
        """Return the peak memory in megabytes, the same for all victims; Shape (V).

        Raises:
            MetricUnavailable: the job did not record it.
        """
        return np.full(comparison.victims, job_record(comparison, "peak_memory_mb"))
