"""What every metric spec provides, and what it compares."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from gleak.errors import GleakError
from gleak.spec import Spec

if TYPE_CHECKING:
    from gleak.artifacts.reconstruction import Reconstruction


class MetricUnavailable(GleakError):  # noqa: N818
    """A metric that cannot be computed here; the reason is shown and the run goes on."""


@dataclass(frozen=True)
class Comparison:
    """Truth and reconstruction of V victims, samples already matched to each other.

    Args:
        truth: Shape (V, N, *shape), values in [0, 1].
        estimate: same Shape; the sample assigned to each true one, NaN where there was none left.
        truth_labels, estimate_labels: Shape (V, N); labels are assigned on their own, as many
            equal pairs as possible, -1 where there was none left.
        modality: "image" or "tabular".
        reconstruction: the whole artifact, in its own order; None for the truth control.
        provenance: what ``provenance.json`` beside the reconstruction says (seconds, ...).
    """

    truth: np.ndarray
    estimate: np.ndarray
    truth_labels: np.ndarray
    estimate_labels: np.ndarray
    modality: str
    reconstruction: Reconstruction | None
    provenance: dict[str, Any]

    @property
    def victims(self) -> int:
        """How many victims are compared."""
        return len(self.truth)

    @property
    def converged(self) -> np.ndarray:
        """Whether the attack met its own criterion; Shape (V). The truth control always has."""
        if self.reconstruction is None:
            return np.ones(self.victims, dtype=bool)
        return self.reconstruction.converged


class MetricSpec(Spec):
    """One number per sample, or per victim.

    ``unmatched`` is the value of a true sample that no reconstruction was left for.
    """

    kind: ClassVar[str] = "metric"
    modalities: ClassVar[frozenset[str]] = frozenset({"image", "tabular"})
    per: ClassVar[Literal["sample", "victim"]] = "sample"
    unit: ClassVar[str] = "1"
    better: ClassVar[Literal["higher", "lower"]] = "lower"
    unmatched: ClassVar[float] = float("nan")

    @abstractmethod
    def measure(self, comparison: Comparison) -> np.ndarray:
        """The values; Shape (V, N) if per sample, (V) if per victim.

        Raises:
            MetricUnavailable: it cannot be computed on this machine or for these samples.
        """

    def matched(self, comparison: Comparison) -> np.ndarray:
        """Which true samples have a counterpart to be measured against; Shape (V, N)."""
        estimate = comparison.estimate
        return np.asarray(~np.isnan(estimate.reshape(*estimate.shape[:2], -1)).any(axis=-1))
