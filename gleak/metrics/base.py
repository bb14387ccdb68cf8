"""What every metric spec provides, and what it measures."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from gleak.core.errors import GleakError
from gleak.core.registry import load, parse
from gleak.core.spec import Spec

if TYPE_CHECKING:
    from gleak.artifacts.model import Model
    from gleak.artifacts.reconstruction import Reconstruction
    from gleak.metrics.audits.base import Broadcast


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
        feature_groups: of a table, one group number per column (see
            `gleak.artifacts.dataset.Dataset`).
        embeddings: the true ones, as in `gleak.artifacts.private.Private`.
        drift: of the clients' local steps, as there.
        rounds: which samples stand behind each observed round, as there.
        noise_multipliers: of the clients' local steps, as there.
        perturbation: by their defence, as there.
        levels: the spec string of each level of the cell.
        judges: by name ("tagger"), networks that were trained on public data to score attacks.
    """

    truth: np.ndarray
    estimate: np.ndarray
    truth_labels: np.ndarray
    estimate_labels: np.ndarray
    modality: str
    reconstruction: Reconstruction | None
    provenance: dict[str, Any]
    feature_groups: np.ndarray | None = None
    embeddings: np.ndarray | None = None
    drift: np.ndarray | None = None
    rounds: np.ndarray | None = None
    noise_multipliers: np.ndarray | None = None
    perturbation: np.ndarray | None = None
    levels: Mapping[str, str] = field(default_factory=dict)
    judges: Mapping[str, Any] = field(default_factory=dict)

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


Level = Literal["training", "crafting", "attack"]


class ScoreSpec(Spec):
    """What stands in a table of scores; ``level`` is the last one of the cells that have it."""

    kind: ClassVar[str] = "metric"
    level: ClassVar[Level]
    unit: ClassVar[str] = "1"
    better: ClassVar[Literal["higher", "lower"]] = "lower"


class ModelMetricSpec(ScoreSpec):
    """One number per trained model."""

    level: ClassVar[Level] = "training"

    @abstractmethod
    def measure(self, model: Model) -> float:
        """The value.

        Raises:
            MetricUnavailable: it cannot be told of this model.
        """


class ParametersMetricSpec(ScoreSpec):
    """One number per broadcast: what a client can tell of the parameters it is sent."""

    level: ClassVar[Level] = "crafting"

    @abstractmethod
    def measure(self, broadcast: Broadcast) -> float:
        """The value.

        Raises:
            MetricUnavailable: it cannot be told of these parameters.
        """


class MetricSpec(ScoreSpec):
    """One number per sample of a reconstruction, or per victim.

    ``unmatched`` is the value of a true sample that no reconstruction was left for.
    """

    level: ClassVar[Level] = "attack"
    modalities: ClassVar[frozenset[str]] = frozenset({"image", "tabular"})
    per: ClassVar[Literal["sample", "victim"]] = "sample"
    unmatched: ClassVar[float] = float("nan")

    def applies(self, comparison: Comparison) -> bool:
        """Whether the metric says something of this cell; it is left out of its scores if not."""
        return comparison.modality in self.modalities

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


def metrics_of(level: str) -> list[Any]:
    """Every registered metric of the cells that end with a level, with its defaults."""
    metrics = [parse("metric", name) for name in load("metric")]
    return [metric for metric in metrics if metric.level == level]
