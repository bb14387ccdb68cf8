"""Audits: statistics of broadcast parameters that a client checks before it trains on them.

A statistic of every layer is compared with a limit that honest models satisfy, whether fresh,
trained with weight decay, pruned, fine-tuned, quantised or factorised (docs/results/mkor.md).
Layers that are too small for a statistic are skipped.

Of each layer, an audit considers the rows and columns that the client's samples reach, if their
weights are large or influence the logits; without samples, those with large weights
(`gleak.metrics.audits.weight_matrices`). Rows and columns that were never trained, and that weight
decay reduced to rounding errors, therefore raise no alarm.

A server can exploit this. With samples, it can hide neurons that are active only for samples unlike
the client's, whose update would reveal nothing about these; and neurons with small weights that
pass on their bias instead of their inputs (their outputs are audited in the next layer). Without
samples it can also hide a path through weights below a tenth of the layer's large ones, or a layer
whose weights are all a thousand times smaller than fresh ones, if later layers amplify them.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from gleak.artifacts.dataset import Dataset
from gleak.artifacts.model import Model
from gleak.core.errors import GleakError, IncompatibleError
from gleak.core.lazy import torch
from gleak.metrics.audits.client_gradients import measure_reach
from gleak.metrics.audits.reference import Reference
from gleak.metrics.audits.sample_inputs import takes_samples
from gleak.metrics.audits.weight_matrices import (
    Balanced,
    Reach,
    balance,
    filled_submatrix,
    large_lines,
    submatrix,
    used_submatrix,
)
from gleak.metrics.base import MetricUnavailable, ScoreSpec
from gleak.models.broadcast import load_network

REACH_SAMPLES = 128
"""Number of samples on which a client measures which weights are reached."""


@dataclass(frozen=True)
class Layer:
    """A dense layer or a convolution.

    Args:
        name: name without ``.weight``.
        weights: one row per neuron or filter; Shape (out, in), for a convolution in * kh * kw.
        biases: Shape (out), None without biases.
        dense: True for a dense layer.
        reach: gradients and influences of the client's samples; None without samples.
    """

    name: str
    weights: NDArray
    biases: NDArray | None
    dense: bool
    reach: Reach | None = None

    @cached_property
    def reached_weights(self) -> NDArray:
        """Weights of the rows and columns that a sample reaches; all of them without samples."""
        return self.weights if self.reach is None else submatrix(self.weights, *self.reach.reached)

    @cached_property
    def used_lines(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Masks of the rows and columns of the reached weights that are large or have influence."""
        large = large_lines(self.reached_weights)
        if self.reach is None:
            return large
        rows, columns = map(np.logical_or, large, self.reach.influential)
        return rows, columns

    @cached_property
    def audited(self) -> NDArray:
        """Audited weight matrix: rows and columns in use that are not nearly empty."""
        if self.reach is None:
            return filled_submatrix(used_submatrix(self.weights))
        return filled_submatrix(submatrix(self.reached_weights, *self.used_lines))

    @cached_property
    def balanced(self) -> Balanced:
        """Audited weight matrix with balanced rows and columns."""
        return balance(self.audited)


@dataclass(frozen=True)
class Finding:
    """Statistic of the layer of a name, higher if more suspicious, and its description."""

    layer: str
    statistic: float
    text: str


class Broadcast:
    """Parameters as received by a client, which may have samples to evaluate them on.

    Findings are cached: the metrics of one broadcast share them.
    """

    def __init__(
        self,
        model: Model,
        samples: Dataset | None = None,
        seed: int = 0,
        build: Callable[[], torch.nn.Module] | None = None,
        reference: Reference | None = None,
    ) -> None:
        """Store the received parameters.

        Args:
            model: the parameters.
            samples: data from which the client may draw; None: only the parameters are used.
            seed: seed of the client's draw.
            build: returns a new network with the parameters, in evaluation mode; None: the
                architecture is that of the model's spec.
            reference: architecture that the client expects; None: it expects none.

        Raises:
            IncompatibleError: the model does not accept these samples, or the reference is another
                architecture.
        """
        shape = tuple(model.input_shape.tolist())
        if samples is not None and (shape, model.classes) != (samples.shape, samples.classes):
            raise IncompatibleError(
                f"the model expects samples of shape {shape} in {model.classes} classes, but "
                f"dataset {samples.spec} has shape {samples.shape} in {samples.classes} classes; "
                "give the dataset of the model"
            )
        self.model, self.samples, self.seed, self._build = model, samples, seed, build
        self.reference = reference
        if reference is not None:
            reference.added_layers(model)
        self._examined: dict[AuditSpec, list[Finding]] = {}

    @cached_property
    def layers(self) -> list[Layer]:
        """All layers whose parameters are matrices or kernels; errors as for `network`."""
        reaches: dict[str, Reach] = {}
        if self.samples is not None and self.has_samples:
            reaches = measure_reach(self.network(), self.samples, REACH_SAMPLES, self.seed)
        layers, parameters = [], self.model.parameters
        for name, values in parameters.items():
            if values.ndim > 1 and values.size:
                # Without any influence, as if training failed, rounding decides what is reached.
                reach = reaches.get(name)
                stem, dense = name.removesuffix(".weight"), values.ndim == 2
                weights = values.astype(np.result_type(values, np.float32), copy=False)
                layers.append(
                    Layer(
                        stem,
                        weights.reshape(len(values), -1),
                        parameters.get(f"{stem}.bias"),
                        dense,
                        reach if reach and reach.is_significant else None,
                    )
                )
        return layers

    @cached_property
    def layers_of_samples(self) -> list[Layer]:
        """Dense layers whose inputs are the values of a sample.

        Of an architecture that cannot be built, those with as many inputs as a sample has values;
        so, too, if that is the first layer alone.

        Raises:
            MetricUnavailable: samples are no images.
        """
        if self.model.modality != "image":
            raise MetricUnavailable("it is about the intensities of images")
        shape = tuple(map(int, self.model.input_shape))
        values = math.prod(shape)
        fits = [each for each in self.layers if each.dense and each.weights.shape[1] == values]
        if all(each is self.layers[0] for each in fits):
            return fits
        try:
            network = self.network()
        except GleakError:
            return fits
        return [each for each in fits if takes_samples(network, each.name, shape)]

    @property
    def has_samples(self) -> bool:
        """True if the client has samples to evaluate the parameters on."""
        return self.samples is not None and len(self.samples.labels("train")) > 0

    def own_samples(self, fewest: int) -> Dataset:
        """Return the client's samples.

        Raises:
            MetricUnavailable: there are fewer in its train split.
        """
        if self.samples is None or len(self.samples.labels("train")) < fewest:
            raise MetricUnavailable(
                f"it needs {fewest} of the client's own samples or more; give samples (--data)"
            )
        return self.samples

    def network(self) -> torch.nn.Module:
        """Return a new network with the received parameters, in evaluation mode.

        Raises:
            ArtifactError: the parameters do not match the architecture.
        """
        return self._build() if self._build else load_network(self.model, "the parameters")

    def findings(self, audit: AuditSpec) -> list[Finding]:
        """Return the findings of an audit; errors as for `AuditSpec.examine`."""
        if audit not in self._examined:
            self._examined[audit] = audit.examine(self)
        return self._examined[audit]


class ParametersMetricSpec(ScoreSpec):
    """Base of the metrics with one value per broadcast, computed by a client."""

    level = "crafting"

    @abstractmethod
    def measure(self, broadcast: Broadcast) -> float:
        """Compute the value.

        Raises:
            MetricUnavailable: not defined for these parameters.
        """


class AuditSpec(ParametersMetricSpec):
    """Base of the audits: one statistic per layer, in units of its limit; above 1 is an alarm.

    ``meaning`` is what an alarm means, in one sentence to a client.
    """

    unit = "limits"
    meaning: ClassVar[str] = ""

    limit: float

    @abstractmethod
    def examine(self, broadcast: Broadcast) -> list[Finding]:
        """Compute the statistic of every layer that is large enough for it.

        Raises:
            MetricUnavailable: the audit needs data that the client does not have.
        """

    def worst(self, broadcast: Broadcast) -> Finding:
        """Return the most suspicious layer's finding; a statistic that is not finite is infinite.

        Raises:
            MetricUnavailable: no layer is large enough.
        """
        findings = broadcast.findings(self)
        if not findings:
            raise MetricUnavailable("no layer is large enough")
        for finding in findings:
            if not math.isfinite(finding.statistic):  # as for overflowing gradients
                return Finding(finding.layer, math.inf, f"not finite: {finding.text}")
        return max(findings, key=lambda finding: finding.statistic)

    def alarms(self, broadcast: Broadcast) -> bool:
        """Return True if a layer exceeds the limit; False if no layer is large enough."""
        try:
            return self.worst(broadcast).statistic > self.limit
        except MetricUnavailable:
            return False

    def measure(self, broadcast: Broadcast) -> float:
        return self.worst(broadcast).statistic / self.limit


def evenly_spaced(count: int, wanted: int) -> np.ndarray:
    """Return ``wanted`` of ``count`` positions at even distances; all if there are fewer."""
    return np.linspace(0, count - 1, min(count, wanted)).round().astype(int)
