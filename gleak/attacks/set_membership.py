"""Samples in the middle of what the rounding of a dense first layer's gradient leaves open."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, Self

import numpy as np

from gleak.artifacts.reconstruction import Reconstruction
from gleak.attacks.base import LABELS, AttackSummary
from gleak.attacks.cpa_noisy import CPANoisy
from gleak.attacks.first_layer import Aono, DenseFirstAttack
from gleak.attacks.matching.problem import mean_gradients
from gleak.attacks.matching.quantisation_cells import NearestCell
from gleak.attacks.noisy_first_layer import FirstLayer
from gleak.attacks.observation import Observation
from gleak.clients.base import ClientSpec
from gleak.core.errors import IncompatibleError
from gleak.core.lazy import torch
from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.data.base import DatasetSpec
from gleak.models.base import ModelSpec
from gleak.models.layer_search import layer_of_samples

ENTRIES = 2**23
"""Largest number of interval ends that are sorted at once."""
SETTLED = 1e-4
"""Largest change of a value in a turn after which there is no other."""


@register("set_membership")
class SetMembership(DenseFirstAttack):
    """Samples in the middle of what the rounding of a dense first layer's gradient leaves open.

    A value that is rounded to the nearest of several levels is known in an interval, of half a
    level to either side. The gradient of the first layer's neuron k is the sum of d_nk x_n over the
    samples, so with the derivatives d and the other samples given, each neuron says in which
    interval every value of a sample lies. Where all derivatives are right these intervals have a
    point in common; as a neuron may be taken for active by mistake, the values are taken that most
    intervals have in common (the relaxed intersection), and of these the middle. The network gives
    the derivatives at the samples found so far, and both are computed in turn, one sample after the
    other.

    Of gradients that were not rounded the result is that of the start. With m neurons the
    intersection narrows as 1 / m, and the error of least squares only as 1 / sqrt(m). Of a single
    sample the result hardly depends on the start, `aono`; of a batch it begins at `cpa_noisy`.
    """

    source = (
        "ours; bounded errors by Milanese and Belforte 1982, relaxed intersection by Jaulin 2009"
    )
    modalities: ClassVar[frozenset[str]] = frozenset({"image"})
    budget_fields: ClassVar[frozenset[str]] = frozenset({"turns"})
    takes_local_steps: ClassVar[bool] = False
    takes_batch_statistics: ClassVar[bool] = False

    turns: int = parameter(8, "computations of all samples, at most", source="ours", ge=1)
    bounded: Literal["middle", "start"] = parameter(
        "middle",
        "values that rounding bounds from one side only: in the middle between this bound and the "
        "end of their range; start: as at the start, or at the bound",
        source="ours",
    )

    def check(self, dataset: DatasetSpec, model: ModelSpec, client: ClientSpec) -> None:
        super().check(dataset, model, client)
        if client.batch_size > 1:
            CPANoisy().check(dataset, model, client)

    def check_network(
        self, network: torch.nn.Module, shape: tuple[int, ...], classes: int, client: ClientSpec
    ) -> None:
        super().check_network(network, shape, classes, client)
        if client.batch_size > 1:
            CPANoisy().check_network(network, shape, classes, client)

    def check_observation(self, observation: Observation) -> None:
        super().check_observation(observation)
        if not _is_rounded(observation):
            raise IncompatibleError("needs values rounded to the nearest level")
        if observation.protocol.clipping is not None:
            raise IncompatibleError("needs gradients of known scale")
        if observation.batch_size > 1:
            CPANoisy().check_observation(observation)

    def proposals(self, observation: Observation, evaluations: int) -> Sequence[Self]:
        self.check_observation(observation)
        return [self, self.model_copy(update={"bounded": "start"})]

    def keeps_samples(self, observation: Observation) -> bool:
        return True

    def summary(self) -> AttackSummary:
        return AttackSummary(labels=LABELS["argmin"])

    def reconstruct(self, observation: Observation) -> Reconstruction:
        attack = Aono() if observation.batch_size == 1 else CPANoisy()
        start = attack.reconstruct(observation)
        if not _is_rounded(observation):
            return start
        inputs, settled = start.inputs.copy(), np.zeros(len(start.inputs), dtype=bool)
        for row in range(observation.victims):
            layer = RoundedLayer.of(observation.of_victim(row))
            samples = torch.from_numpy(inputs[row]).flatten(1)
            labels = torch.from_numpy(start.labels[row]).clamp_min(0)
            found, settled[row] = self._narrowed(layer, samples, labels)
            inputs[row] = found.reshape(inputs[row].shape).cpu().numpy()
        return Reconstruction(inputs=inputs, labels=start.labels, converged=settled, paired=True)

    def _narrowed(
        self, rounded: RoundedLayer, samples: torch.Tensor, labels: torch.Tensor
    ) -> tuple[torch.Tensor, bool]:
        """Return samples after the last turn, Shape (N, F), and whether they have settled."""
        layer = rounded.layer
        inputs = layer.scaling.of_samples(samples.to(rounded.gradient))
        for _ in range(self.turns):
            before = inputs.clone()
            slopes = rounded.slopes(inputs, labels)
            for sample in range(len(inputs)):
                low, high = rounded.intervals(inputs, slopes, sample)
                least, most = layer.scaling.bounds.to(inputs)
                middle = (low + high) / 2
                if self.bounded == "start":
                    one_sided = (low <= least) | (high >= most)
                    middle = inputs[sample].clamp(low, high).where(one_sided, middle)
                inputs[sample] = middle
            if float((inputs - before).abs().max()) <= SETTLED:
                return layer.scaling.samples_of(inputs), True
        return layer.scaling.samples_of(inputs), False


def _is_rounded(observation: Observation) -> bool:
    """Return True if the weight's gradient of the layer was rounded to the nearest levels."""
    layer, _ = layer_of_samples(observation.model, observation.input_shape)
    return isinstance(observation.cells.get(f"{layer}.weight"), NearestCell)


@dataclass(frozen=True)
class RoundedLayer:
    """First dense layer of one victim, whose gradient was rounded to the nearest levels.

    Args:
        layer: takes the samples.
        gradient: of its weight, as rounded; Shape (neurons, F).
        half: largest error of a value of it.
    """

    layer: FirstLayer
    gradient: torch.Tensor
    half: float

    @classmethod
    def of(cls, observation: Observation) -> Self:
        """Return the layer of one victim's network."""
        layer = FirstLayer.of(observation)
        name = f"{layer.name}.weight"
        gradient = mean_gradients(observation)[name][0]
        step = float(observation.cells[name].step) / abs(observation.protocol.update_scale)
        return cls(layer, gradient, step / 2)

    def slopes(self, inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Compute the derivatives of the client's loss at the layer's outputs; (N, neurons)."""
        outputs = self.layer.outputs(inputs.double())
        slopes = self.layer.slopes(inputs, outputs, labels.to(inputs.device)).to(inputs)
        reduction = self.layer.observation.protocol.reduction
        return slopes / len(inputs) if reduction == "mean" else slopes

    def intervals(
        self, inputs: torch.Tensor, slopes: torch.Tensor, sample: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the ends of the intervals of one sample's inputs, given the other samples.

        Shape (F) each. Neurons whose derivative is so small that they allow any input are left out.
        """
        least, most = self.layer.scaling.bounds.to(inputs)
        own = slopes[sample]
        telling = own.abs() * float((most - least).max()) > self.half
        others = slopes[:, telling].clone()
        others[sample] = 0
        own = own[telling, None]
        ends: list[tuple[torch.Tensor, torch.Tensor]] = []
        for part in torch.arange(inputs.shape[1]).split(max(1, ENTRIES // (len(own) + 1))):
            left = self.gradient[telling][:, part] - others.T @ inputs[:, part]
            middle, width = left / own, self.half / own.abs()
            interval = (middle - width, middle + width)
            ends.append(relaxed_intersection(*interval, least[part], most[part]))
        low, high = zip(*ends, strict=True)
        return torch.cat(low), torch.cat(high)


def relaxed_intersection(
    low: torch.Tensor, high: torch.Tensor, least: torch.Tensor, most: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the points in a range that most of K intervals have in common, from first to last.

    Args:
        low: where the intervals begin; Shape (K, F).
        high: where they end.
        least: begin of the range; Shape (F).
        most: its end.

    Returns:
        The first and the last of these points; Shape (F) each.
    """
    begins = torch.cat([least[None], low.clamp(least, most)])
    ends = torch.cat([most[None], high.clamp(least, most)])
    points, order = torch.cat([begins, ends]).sort(0)
    step = torch.where(order < len(begins), 1, -1)
    common = step.cumsum(0)[:-1].where(points[1:] > points[:-1], -1)
    largest = common == common.amax(0)
    first = points[:-1].where(largest, torch.inf).amin(0)
    last = points[1:].where(largest, -torch.inf).amax(0)
    return first, last
