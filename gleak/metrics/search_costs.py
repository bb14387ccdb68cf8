"""Costs of an attack: of its search per victim, and of the whole job."""

from __future__ import annotations

import numpy as np

from gleak.artifacts.reconstruction import Reconstruction
from gleak.core.registry import register
from gleak.metrics.base import NOT_NEGATIVE, Comparison, MetricSpec, MetricUnavailable
from gleak.runtime.provenance import CPU


def attacked(comparison: Comparison) -> Reconstruction:
    """Return the reconstruction; raise `MetricUnavailable` for the truth control."""
    if comparison.reconstruction is None:
        raise MetricUnavailable("the truth control does not iterate: no attack was run")
    return comparison.reconstruction


class SearchMetric(MetricSpec):
    """Base of the metrics that are the reconstruction's field of the same name."""

    per = "victim"

    def measure(self, comparison: Comparison) -> np.ndarray:
        values = getattr(attacked(comparison), self.name)
        if values is None:
            raise MetricUnavailable(
                f"the attack does not iterate or does not record it: there is no /{self.name}"
            )
        return np.asarray(values, dtype=np.float64)


def job_record(comparison: Comparison, key: str) -> float:
    """Return a number from the ``provenance.json`` of the attack's job."""
    attacked(comparison)
    if key not in comparison.provenance:
        raise MetricUnavailable(f"no {key!r} in a provenance.json beside the reconstruction")
    return float(comparison.provenance[key])


@register("iterations")
class Iterations(SearchMetric):
    """Number of iterations for a victim, including those of restarts."""

    unit = "iterations"
    limits = NOT_NEGATIVE


@register("evaluations")
class Evaluations(SearchMetric):
    """Number of evaluations of the attack's objective and its gradient for a victim."""

    unit = "evaluations"
    limits = NOT_NEGATIVE


@register("restarts")
class Restarts(SearchMetric):
    """Number of restarts of a victim's search after divergence or stagnation."""

    unit = "restarts"
    limits = NOT_NEGATIVE


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
    time until the GPU has finished (``seconds``). Victims run as one batch, in equal shares.
    """

    per = "victim"
    of_job = True
    unit = "s"
    limits = NOT_NEGATIVE

    def measure(self, comparison: Comparison) -> np.ndarray:
        on_cpu = comparison.provenance.get("device", CPU) == CPU
        share = job_record(comparison, "cpu_seconds" if on_cpu else "seconds") / comparison.victims
        return np.full(comparison.victims, share)


@register("peak_memory")
class PeakMemory(MetricSpec):
    """Peak memory of the attack's job (``peak_memory_mb`` in its provenance).

    The job runs all victims together, so every victim is assigned the total.
    """

    per = "victim"
    of_job = True
    unit = "MB"
    limits = NOT_NEGATIVE

    def measure(self, comparison: Comparison) -> np.ndarray:
        return np.full(comparison.victims, job_record(comparison, "peak_memory_mb"))
