"""What the books of an attack say: of its search per victim, and of the whole job."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

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
