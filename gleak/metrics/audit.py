"""Audits: what a client can tell from the parameters it was sent, before it trains on them.

A statistic of every layer is compared with a limit that honest models keep, whether fresh or
trained (which models those were stands in docs/results/mkor.md). A layer that is too small for a
statistic says nothing.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from gleak.errors import FitError
from gleak.metrics.base import MetricUnavailable, ParametersMetricSpec

if TYPE_CHECKING:
    from gleak.artifacts.dataset import Dataset
    from gleak.artifacts.model import Model

BLOCK_VALUES = 2**22
SAMPLED_WEIGHTS = 200_000


@dataclass(frozen=True)
class Layer:
    """A dense layer or a convolution.

    Args:
        name: without ``.weight``.
        weights: one row per neuron or filter; Shape (out, in), of a convolution in * kh * kw.
        biases: Shape (out), None where it has none.
        dense: whether it is a dense layer.
    """

    name: str
    weights: np.ndarray
    biases: np.ndarray | None
    dense: bool

    @cached_property
    def magnitude(self) -> float:
        """Median magnitude of the weights, of `SAMPLED_WEIGHTS` of them where there are more."""
        step = self.weights.size // SAMPLED_WEIGHTS | 1
        return float(np.median(np.abs(self.weights.ravel()[::step])))

    def blocks(self) -> Iterator[np.ndarray]:
        """Views of some rows each, so that what is computed of them takes little memory."""
        rows = max(1, BLOCK_VALUES // self.weights.shape[1])
        return (self.weights[at : at + rows] for at in range(0, len(self.weights), rows))


@dataclass(frozen=True)
class Finding:
    """What an audit measured in one layer.

    Args:
        layer: its name.
        statistic: the more conspicuous, the higher.
        text: the same in words.
    """

    layer: str
    statistic: float
    text: str


class Broadcast:
    """Parameters as they reach a client, which may hold samples to try them on.

    Findings are remembered: the metrics of one broadcast share them.
    """

    def __init__(self, model: Model, samples: Dataset | None = None, seed: int = 0) -> None:
        """Take what was sent.

        Args:
            model: the parameters.
            samples: those the client may draw from; None: it looks at the parameters alone.
            seed: of the client's draw.

        Raises:
            FitError: samples that the model does not take.
        """
        if samples is not None:
            _check_samples(model, samples)
        self.model, self.samples, self.seed = model, samples, seed
        self._examined: dict[AuditSpec, list[Finding]] = {}

    @cached_property
    def layers(self) -> list[Layer]:
        """Every parameter with inputs and outputs; biases and normalisation have none."""
        return [
            _layer(name, values, self.model.parameters)
            for name, values in self.model.parameters.items()
            if values.ndim > 1 and values.size
        ]

    def findings(self, audit: AuditSpec) -> list[Finding]:
        """What an audit finds here.

        Raises:
            MetricUnavailable: see `AuditSpec.examine`.
        """
        if audit not in self._examined:
            self._examined[audit] = audit.examine(self)
        return self._examined[audit]


def _check_samples(model: Model, samples: Dataset) -> None:
    shape = tuple(model.input_shape.tolist())
    if (shape, model.classes) != (samples.shape, samples.classes):
        raise FitError(
            f"the model takes samples of shape {shape} in {model.classes} classes, and those of "
            f"dataset {samples.spec} are of shape {samples.shape} in {samples.classes}; give the "
            "dataset it was made for"
        )


def _layer(name: str, values: np.ndarray, parameters: dict[str, np.ndarray]) -> Layer:
    stem = name.removesuffix(".weight")
    return Layer(
        stem, values.reshape(len(values), -1), parameters.get(f"{stem}.bias"), values.ndim == 2
    )


class AuditSpec(ParametersMetricSpec):
    """Base of the audits: a statistic per layer, measured in limits; above 1 it alarms."""

    unit: ClassVar[str] = "limits"

    limit: float

    @abstractmethod
    def examine(self, broadcast: Broadcast) -> list[Finding]:
        """The statistic of every layer that is large enough for it.

        Raises:
            MetricUnavailable: it needs what the client does not have.
        """

    def worst(self, broadcast: Broadcast) -> Finding:
        """The most conspicuous layer.

        Raises:
            MetricUnavailable: no layer says anything.
        """
        findings = broadcast.findings(self)
        if not findings:
            raise MetricUnavailable("no layer is large enough to tell")
        return max(map(_alarming_if_not_finite, findings), key=lambda finding: finding.statistic)

    def alarms(self, broadcast: Broadcast) -> bool:
        """Whether a layer exceeds the limit; False as well where no layer says anything."""
        try:
            return self.worst(broadcast).statistic > self.limit
        except MetricUnavailable:
            return False

    def measure(self, broadcast: Broadcast) -> float:
        """The worst layer's statistic over the limit."""
        return self.worst(broadcast).statistic / self.limit


def _alarming_if_not_finite(finding: Finding) -> Finding:
    """What cannot be computed of a layer, such as overflowing gradients, is as bad as can be."""
    if math.isfinite(finding.statistic):
        return finding
    return replace(finding, statistic=math.inf, text=f"not finite: {finding.text}")


def spread_out(count: int, wanted: int) -> np.ndarray:
    """``wanted`` of ``count`` positions at even distances; all of them where there are fewer."""
    return np.linspace(0, count - 1, min(count, wanted)).round().astype(int)


def root_mean_square(values: np.ndarray) -> float:
    """Root of the mean square, without a copy of what is contiguous."""
    flat = values.ravel()
    return math.sqrt(float(np.vdot(flat, flat)) / max(1, flat.size))
