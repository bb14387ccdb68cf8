"""Audits: what a client can tell from the parameters it was sent, before it trains on them.

A statistic of every layer is compared with a limit that honest models keep, whether fresh, trained
with weight decay, pruned, fine-tuned, quantised or factorised (docs/results/mkor.md). A layer that
is too small for a statistic says nothing.

What is judged of a layer are the rows and columns that the client's samples reach, if their weights
are large or have influence on the logits; without samples, those with large weights
(`gleak.metrics.audits.weight_matrices`). So lines that were never trained, and of which weight
decay left rounding, raise no alarm.

What a server can hide by that. With samples: neurons that are active only for samples unlike those
tried, which would show nothing of these in an update; and neurons with small weights that pass on
their bias instead of their inputs (what they give to the next layer is judged).
Without samples also a path through weights below a tenth of the layer's large ones, or a layer of
weights that are all a thousand times smaller than fresh ones, if later layers amplify them.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from gleak.core.errors import IncompatibleError
from gleak.metrics.audits.weight_matrices import (
    Balanced,
    Reach,
    balance,
    filled_submatrix,
    large_lines,
    part,
    used_submatrix,
)
from gleak.metrics.base import MetricUnavailable, ParametersMetricSpec

if TYPE_CHECKING:
    from gleak.artifacts.dataset import Dataset
    from gleak.artifacts.model import Model

REACH_SAMPLES = 128
"""On how many of its samples a client looks for the weights that they reach."""


@dataclass(frozen=True)
class Layer:
    """A dense layer or a convolution.

    Args:
        name: without ``.weight``.
        weights: one row per neuron or filter; Shape (out, in), of a convolution in * kh * kw.
        biases: Shape (out), None where it has none.
        dense: whether it is a dense layer.
        reach: what the client's samples make of it; None where none were tried.
    """

    name: str
    weights: NDArray
    biases: NDArray | None
    dense: bool
    reach: Reach | None = None

    @cached_property
    def passed(self) -> NDArray:
        """The rows and columns that a sample measure_reach; all of them where none were tried."""
        return self.weights if self.reach is None else part(self.weights, *self.reach.reached)

    @cached_property
    def used(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Which rows, and which columns, of what is passed have large weights or influence."""
        large = large_lines(self.passed)
        if self.reach is None:
            return large
        rows, columns = map(np.logical_or, large, self.reach.influential)
        return rows, columns

    @cached_property
    def judged(self) -> NDArray:
        """The weights that are judged as a matrix: of lines in use that are not nearly empty."""
        if self.reach is None:
            return filled_submatrix(used_submatrix(self.weights))
        return filled_submatrix(part(self.passed, *self.used))

    @cached_property
    def balanced(self) -> Balanced:
        """The same without the scales of rows and columns."""
        return balance(self.judged)


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
            IncompatibleError: samples that the model does not take.
        """
        if samples is not None:
            _check_samples(model, samples)
        self.model, self.samples, self.seed = model, samples, seed
        self._examined: dict[AuditSpec, list[Finding]] = {}

    @cached_property
    def layers(self) -> list[Layer]:
        """Every parameter with inputs and outputs; biases and normalisation have none.

        Raises:
            ArtifactError: there are samples, and the parameters are not those of the architecture.
        """
        return [
            _layer(name, values, self.model.parameters, self._judging(name))
            for name, values in self.model.parameters.items()
            if values.ndim > 1 and values.size
        ]

    @property
    def tried(self) -> bool:
        """Whether the client has samples to try the parameters on."""
        return self.samples is not None and len(self.samples.labels("train")) > 0

    def _judging(self, name: str) -> Reach | None:
        """What samples make of a parameter; None where they pass it with no effect on the logits.

        So it is where training failed: then rounding decides which rows and columns are reached.
        """
        reach = self._reaches.get(name)
        return reach if reach is None or reach.counts else None

    @cached_property
    def _reaches(self) -> dict[str, Reach]:
        """By parameter; empty where there are no samples."""
        if self.samples is None or not self.tried:
            return {}
        from gleak.metrics.audits.client_gradients import measure_reach

        return measure_reach(self.model, self.samples, REACH_SAMPLES, self.seed)

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
        raise IncompatibleError(
            f"the model takes samples of shape {shape} in {model.classes} classes, and those of "
            f"dataset {samples.spec} are of shape {samples.shape} in {samples.classes}; give the "
            "dataset it was made for"
        )


def _layer(
    name: str, values: NDArray, parameters: dict[str, NDArray], reach: Reach | None
) -> Layer:
    stem = name.removesuffix(".weight")
    weights = values.astype(np.result_type(values, np.float32), copy=False)
    matrix = weights.reshape(len(values), -1)
    return Layer(stem, matrix, parameters.get(f"{stem}.bias"), values.ndim == 2, reach)


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


def evenly_spaced(count: int, wanted: int) -> np.ndarray:
    """``wanted`` of ``count`` positions at even distances; all of them where there are fewer."""
    return np.linspace(0, count - 1, min(count, wanted)).round().astype(int)
