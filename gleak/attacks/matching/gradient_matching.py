"""Gradient matching: search for samples whose gradient equals the observed one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from typing import TYPE_CHECKING, Self

from typing_extensions import override

from gleak.attacks.matching.batch_norm_prior import BatchNormPrior
from gleak.attacks.matching.choice import double_training, general_method, verified_method
from gleak.attacks.matching.code_cells import Cell, coded
from gleak.attacks.matching.gradients import ClientTraining, Gradients
from gleak.attacks.matching.joint_pair import joined
from gleak.attacks.matching.label_inference import inferred_labels
from gleak.attacks.matching.problem import (
    IMAGES,
    Evaluation,
    Problem,
    gradient_factor,
    mean_gradients,
    total_variation,
)
from gleak.attacks.matching.skipped import skipped_parameters
from gleak.core.errors import IncompatibleError
from gleak.core.lazy import torch
from gleak.models.parameters import dtype_of

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from gleak.attacks.matching.distances.base import Pair
    from gleak.attacks.matching.parts import Parts
    from gleak.attacks.matching.pieces import FormedPiece
    from gleak.attacks.observation import Observation

ALL = slice(None)


@dataclass(frozen=True)
class GradientMatching(Problem):
    """Distance between dummy and observed gradient, plus priors.

    Args:
        parts: components of the attack.
        observed: for each parameter, Shape (V, *shape).
        gradients: method of computing dummy gradients.
        sent: for each parameter that is compared in part, a mask; Shape (V, *shape).
        skipped: names of the parameters that are left out.
        cells: codes of the parameters, if the distance depends on them.
        batch_norm: prior by statistics of batch normalisation; None: none.
        precise: local training in double precision, if the optimizer needs residuals.
    """

    parts: Parts
    gradients: Gradients
    sent: dict[str, torch.Tensor]
    skipped: frozenset[str]
    cells: dict[str, Cell]
    batch_norm: BatchNormPrior | None = None
    precise: ClientTraining | None = None

    @classmethod
    def of(cls, observation: Observation, parts: Parts) -> Self:
        """Build the problem from an observation and the components of an attack."""
        observed = mean_gradients(observation)
        return cls(
            parts=parts,
            observed=observed,
            targets=_fixed_targets(observation, observed, parts),
            shape=(observation.batch_size, *observation.input_shape),
            classes=observation.classes,
            gradients=gradients_of(observation, parts),
            sent=_compared(observation, observed, parts),
            skipped=skipped_parameters(
                observation.model, observation.input_shape, observed, parts.skip
            ),
            cells=_cells(observation) if parts.distance.reads_codes else {},
            batch_norm=BatchNormPrior.of(observation, parts.statistics)
            if parts.batch_norm
            else None,
            precise=_precise(observation, parts),
        )

    @cached_property
    def scale(self) -> torch.Tensor:
        """Scale of the distances, the distance of a zero gradient; Shape (V)."""
        matched = [value for name, value in self.observed.items() if name not in self.skipped]
        return self.parts.distance.scale(matched)

    @cached_property
    def layer_weights(self) -> dict[str, torch.Tensor]:
        """Weight of each parameter, Shape (V); empty where all weights are equal."""
        return self.parts.layers.of(self.observed) if self.parts.layers else {}

    @cached_property
    def layers(self) -> list[list[str]]:
        """Names of the matched parameters by layer, from the first to the last."""
        names = [name for name in self.observed if name not in self.skipped]
        return [list(each) for _, each in groupby(names, lambda name: name.rpartition(".")[0])]

    def residuals(self, point: torch.Tensor, names: Collection[str]) -> torch.Tensor:
        """Compute the difference of dummy and observed gradient of one victim.

        Args:
            point: Shape (P), in double precision.
            names: of the parameters that are compared.

        Returns:
            Shape (R), of all compared values, differentiable; zero where a value was not sent.
        """
        assert self.precise
        at = point.to(dtype_of(self.precise.model))[None]
        pieces = general_method(self.precise)(
            self.inputs(at), self.soft_labels(at).to(at), self.observed
        )
        compared = [piece.formed() for piece in pieces if piece.name in names]
        return torch.cat([self._difference(piece).flatten().double() for piece in compared])

    def _difference(self, piece: FormedPiece) -> torch.Tensor:
        masked = piece.within(self.sent[piece.name]) if piece.name in self.sent else piece
        return masked.gradient - masked.target

    @override
    def keep(self, rows: torch.Tensor | slice) -> Self:
        sent = {name: value[rows] for name, value in self.sent.items()}
        cells = {name: cell.at(rows) for name, cell in self.cells.items()}
        prior = self.batch_norm and self.batch_norm.keep(rows)
        return replace(super().keep(rows), sent=sent, cells=cells, batch_norm=prior)

    @override
    def in_microbatches(self, count: int) -> Self | None:
        gradients = self.gradients.in_microbatches(count) if count <= self.shape[0] else None
        return None if gradients is None else replace(self, gradients=gradients)

    @override
    def evaluate(self, points: torch.Tensor) -> Evaluation:
        points = points.detach().requires_grad_()
        inputs, targets = self.inputs(points), self.soft_labels(points)
        given = self.network_inputs(points)
        distance = self.parts.distance.measure(self._pairs(given, targets))
        objective = distance
        if self.parts.total_variation and inputs.ndim == IMAGES:
            objective = objective + self.parts.total_variation * total_variation(inputs)
        if self.batch_norm:
            objective = objective + self.parts.batch_norm * self.batch_norm(inputs)
        if self.parts.label_term:
            objective = objective + self.parts.label_term * self._label_term(given, targets)
        relative = objective / self.scale
        (gradient,) = torch.autograd.grad(relative.sum(), points)
        return Evaluation(relative.detach(), (distance / self.scale).detach(), gradient)

    def network_inputs(self, points: torch.Tensor) -> torch.Tensor:
        """Return what the network takes at these points: the samples."""
        return self.inputs(points)

    def _pairs(self, inputs: torch.Tensor, targets: torch.Tensor) -> Sequence[Pair]:
        """Compute the weighted pairs of gradients, masked to the compared values."""
        pieces = self.gradients(inputs, targets, self.observed)
        compared = [
            piece.within(self.sent[piece.name]) if piece.name in self.sent else piece
            for piece in pieces
            if piece.name not in self.skipped
        ]
        return joined(coded(compared, self.cells), self.layer_weights)

    def _label_term(self, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Compute the squared distance of probabilities to labels (CPL Algorithm 1, line 12)."""
        return (self.gradients.logits(inputs).softmax(2) - targets).square().sum((1, 2))


def gradients_of(observation: Observation, parts: Parts) -> Gradients:
    """Return the method of computing gradients, verified once for all observations of a job."""
    training = ClientTraining.of(observation, parts.client_model)
    methods = observation.verified_methods
    if parts.client_model not in methods:
        try:
            methods[parts.client_model] = verified_method(training)
        except IncompatibleError as error:
            raise IncompatibleError(f"{observation.spec}: {error}") from error
    return methods[parts.client_model](training)


def _precise(observation: Observation, parts: Parts) -> ClientTraining | None:
    if not parts.optimizer.needs_residuals:
        return None
    return double_training(ClientTraining.of(observation, parts.client_model))


def _cells(observation: Observation) -> dict[str, Cell]:
    """Return the codes of the mean gradients of the first round."""
    factor = gradient_factor(observation)
    return {name: cell.at((ALL, 0)).scaled(factor) for name, cell in observation.cells.items()}


def _compared(
    observation: Observation, observed: dict[str, torch.Tensor], parts: Parts
) -> dict[str, torch.Tensor]:
    if parts.compared == "all":
        return {}
    if parts.compared == "nonzero":
        present = {name: value != 0 for name, value in observed.items()}
        return {name: mask for name, mask in present.items() if not mask.all()}
    return {name: value[:, 0] for name, value in observation.sent.items()}


def _fixed_targets(
    observation: Observation, observed: dict[str, torch.Tensor], parts: Parts
) -> torch.Tensor | None:
    if parts.labels == "joint":
        return None
    if parts.labels == "known":
        labels = observation.granted["labels"].long()
    else:
        labels = inferred_labels(parts.labels, observation, observed)
    return torch.nn.functional.one_hot(labels, observation.classes).to(
        next(iter(observed.values()))
    )
