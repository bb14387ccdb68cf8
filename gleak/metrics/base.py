"""Base classes of metrics and the data they measure."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np

from gleak.artifacts.dataset import Dataset
from gleak.artifacts.model import Model
from gleak.artifacts.private import Private
from gleak.artifacts.reconstruction import Reconstruction
from gleak.core.errors import GleakError
from gleak.core.registry import load, parse
from gleak.core.spec import Spec

SHARE, SIGNED, NOT_NEGATIVE = (0.0, 1.0), (-1.0, 1.0), (0.0, math.inf)
"""Limits of metrics."""


class MetricUnavailable(GleakError):  # noqa: N818
    """Metric that cannot be computed for a cell; the reason is recorded and scoring continues."""


@dataclass(frozen=True)
class Comparison:
    """True and reconstructed samples of V victims, already matched to each other.

    Args:
        private: the truth, with properties of its updates.
        estimate: sample assigned to each true one, NaN if unassigned; Shape (V, N, *shape).
        estimate_labels: labels, assigned independently of samples with as many equal pairs as
            possible; -1 if unassigned, or if the truth is unknown; Shape (V, N).
        reconstruction: the whole artifact in its original order; None for the truth control.
        provenance: content of ``provenance.json`` beside the reconstruction (seconds, ...).
        levels: spec string of each level of the cell.
        evaluators: networks trained on public data for scoring attacks, by name ("tagger").
        dataset: from which the true samples come; None if it is not known.
    """

    private: Private
    estimate: np.ndarray
    estimate_labels: np.ndarray
    reconstruction: Reconstruction | None
    provenance: Mapping[str, Any] = field(default_factory=dict)
    levels: Mapping[str, str] = field(default_factory=dict)
    evaluators: Mapping[str, Any] = field(default_factory=dict)
    dataset: Dataset | None = None

    @property
    def truth(self) -> np.ndarray:
        """True samples, Shape (V, N, *shape), values in [0, 1]."""
        return self.private.inputs

    @property
    def truth_labels(self) -> np.ndarray:
        """True labels, Shape (V, N); -1 if unknown."""
        return self.private.labels

    @property
    def victims(self) -> int:
        return len(self.truth)

    @property
    def converged(self) -> np.ndarray:
        """True where the attack met its own criterion, Shape (V); all True without an attack."""
        if self.reconstruction is None:
            return np.ones(self.victims, dtype=bool)
        return self.reconstruction.converged


Level = Literal["training", "crafting", "attack", "membership", "audit"]


class ScoreSpec(Spec):
    """Base of all metrics.

    ``level`` is the kind of the last spec of the cells it is computed for. ``binary`` is True if
    every value is 0 or 1, so that the mean is a success rate. ``limits`` are the least and the
    greatest possible value; intervals end there. ``of_job`` is True if all victims of a job have
    one value.
    """

    kind: ClassVar[str] = "metric"
    level: ClassVar[Level]
    unit: ClassVar[str] = "1"
    better: ClassVar[Literal["higher", "lower"]] = "lower"
    binary: ClassVar[bool] = False
    limits: ClassVar[tuple[float, float]] = (-math.inf, math.inf)
    of_job: ClassVar[bool] = False

    @property
    def weights(self) -> frozenset[str]:
        """Names of the files in the cache of ``torch.hub`` that the metric needs."""
        return frozenset()

    def is_among(self, names: Collection[str]) -> bool:
        """Return True if scores with metrics of these names have this one."""
        return str(self) in names


class ModelMetricSpec(ScoreSpec):
    """Base of the metrics with one value per trained model."""

    level: ClassVar[Level] = "training"

    @abstractmethod
    def measure(self, model: Model) -> float:
        """Compute the value.

        Raises:
            MetricUnavailable: not defined for this model.
        """


class MetricSpec(ScoreSpec):
    """Base of the metrics with one value per sample of a reconstruction, or per victim.

    ``unmatched`` is the value of a true sample without an assigned reconstruction. ``needs_labels``
    is True if the metric is not defined without true labels.
    """

    level: ClassVar[Level] = "attack"
    modalities: ClassVar[frozenset[str]] = frozenset({"image", "tabular"})
    per: ClassVar[Literal["sample", "victim"]] = "sample"
    unmatched: ClassVar[float] = float("nan")
    needs_labels: ClassVar[bool] = False

    def applies(self, comparison: Comparison) -> bool:
        """Return True if the metric is defined for this cell; else it is left out of its scores."""
        if self.needs_labels and (comparison.truth_labels < 0).any():
            return False
        return comparison.private.modality in self.modalities

    def each(self, comparison: Comparison) -> Sequence[MetricSpec]:
        """Return the metrics that are computed for a cell: this one, if it is defined for it."""
        return [self] if self.applies(comparison) else []

    @abstractmethod
    def measure(self, comparison: Comparison) -> np.ndarray:
        """Compute the values; Shape (V, N) if per sample, (V) if per victim.

        Raises:
            MetricUnavailable: it cannot be computed on this machine or for these samples.
        """

    def matched(self, comparison: Comparison) -> np.ndarray:
        """Return the mask of true samples with an assigned reconstruction; Shape (V, N)."""
        estimate = comparison.estimate
        return np.asarray(~np.isnan(estimate.reshape(*estimate.shape[:2], -1)).any(axis=-1))


def metrics_of(level: str) -> list[Any]:
    """Return all registered metrics, with defaults, of the cells that end with a level."""
    metrics = [parse("metric", name) for name in load("metric")]
    return [metric for metric in metrics if metric.level == level]
