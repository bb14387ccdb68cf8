"""What the books of an attack say: of its search per victim, and of the whole job."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gleak.metrics.base import MetricUnavailable

if TYPE_CHECKING:
    from gleak.artifacts.reconstruction import Reconstruction
    from gleak.metrics.base import Comparison


def search_record(comparison: Comparison, field: str) -> np.ndarray:
    """An optional field of the reconstruction as numbers; Shape (V).

    Raises:
        MetricUnavailable: the attack left the field out, or there was no attack.
    """
    values = getattr(_attacked(comparison), field)
    if values is None:
        raise MetricUnavailable(
            f"the attack does not iterate or keeps no such record: there is no /{field}"
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
