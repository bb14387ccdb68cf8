"""The objective of gradient matching for V victims, as a function of flat unknowns."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Self

import torch
from torch import Tensor
from torch.nn import functional

from gleak.matching.gradients import Gradients
from gleak.matching.labels import RULES, classifier_gradient
from gleak.matching.unrolled import client_gradients

if TYPE_CHECKING:
    from torch import nn

    from gleak.attacks.base import Observation
    from gleak.matching.distances.base import Piece
    from gleak.matching.parts import Parts

IMAGES = 5


@dataclass(frozen=True)
class Evaluation:
    """Objective, gradient distance and descent information at V points.

    Args:
        objective: Shape (V), distance and priors, relative to the distance's scale.
        distance: Shape (V), between dummy and observed gradient alone, relative likewise.
        gradient: Shape (V, P), of the objective.
    """

    objective: Tensor
    distance: Tensor
    gradient: Tensor


@dataclass(frozen=True)
class Problem:
    """What is matched, and how points of the search become samples and labels.

    Unknowns of a victim: its N samples, flat, and with labels=joint also N x classes logits.

    Args:
        parts: of the attack.
        model: with the broadcast parameters.
        gradients: how dummy gradients are computed.
        observed: for each parameter, Shape (V, *shape).
        sent: for each parameter that is compared in part, where; Shape (V, *shape).
        targets: fixed one-hot labels, Shape (V, N, classes); None if optimised.
        shape: (N, *sample shape).
        classes: number of outputs.
    """

    parts: Parts
    model: nn.Module
    gradients: Gradients
    observed: dict[str, Tensor]
    sent: dict[str, Tensor]
    targets: Tensor | None
    shape: tuple[int, ...]
    classes: int

    @classmethod
    def of(cls, observation: Observation, parts: Parts) -> Self:
        """The problem an observation poses to an attack of these parts."""
        observed = mean_gradients(observation)
        return cls(
            parts=parts,
            model=observation.model,
            gradients=client_gradients(observation, parts.client_model),
            observed=observed,
            sent=_compared(observation, parts),
            targets=_fixed_targets(observation, observed, parts),
            shape=(observation.batch_size, *observation.input_shape),
            classes=observation.classes,
        )

    @cached_property
    def scale(self) -> Tensor:
        """What distances are relative to; Shape (V)."""
        return self.parts.distance.scale(list(self.observed.values()))

    @property
    def pixels(self) -> int:
        """Unknowns that are sample values; they come first."""
        return math.prod(self.shape)

    @property
    def unknowns(self) -> int:
        """Length of a point."""
        return self.pixels + (self.shape[0] * self.classes if self.targets is None else 0)

    def keep(self, rows: Tensor | slice) -> Problem:
        """The problem of these victims alone."""
        return Problem(
            self.parts,
            self.model,
            self.gradients,
            {name: value[rows] for name, value in self.observed.items()},
            {name: value[rows] for name, value in self.sent.items()},
            None if self.targets is None else self.targets[rows],
            self.shape,
            self.classes,
        )

    def inputs(self, points: Tensor) -> Tensor:
        """Samples at these points, as they are; Shape (V, N, *sample shape)."""
        return points[:, : self.pixels].unflatten(1, self.shape)

    def soft_labels(self, points: Tensor) -> Tensor:
        """Label probabilities at these points; Shape (V, N, classes)."""
        if self.targets is not None:
            return self.targets
        return points[:, self.pixels :].unflatten(1, (self.shape[0], -1)).softmax(2)

    def evaluate(self, points: Tensor) -> Evaluation:
        """Objective and gradient at V points; Shape (V, P)."""
        points = points.detach().requires_grad_()
        inputs, targets = self.inputs(points), self.soft_labels(points)
        pieces = self._pieces(inputs, targets)
        distance = self.parts.distance.measure(pieces)
        objective = distance
        if self.parts.total_variation and inputs.ndim == IMAGES:
            objective = objective + self.parts.total_variation * total_variation(inputs)
        if self.parts.label_term:
            objective = objective + self.parts.label_term * self._label_term(inputs, targets)
        relative = objective / self.scale
        (gradient,) = torch.autograd.grad(relative.sum(), points)
        return Evaluation(relative.detach(), (distance / self.scale).detach(), gradient)

    def _pieces(self, inputs: Tensor, targets: Tensor) -> list[Piece]:
        """Dummy and observed gradients, cut to what is compared."""
        pieces = self.gradients(inputs, targets, self.observed)
        return [
            piece.within(self.sent[piece.name]) if piece.name in self.sent else piece
            for piece in pieces
        ]

    def _label_term(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Squared distance of the probabilities to the labels (CPL Algorithm 1, line 12)."""
        probabilities = self.model(inputs.flatten(0, 1)).softmax(1)
        return (
            (probabilities - targets.flatten(0, 1))
            .square()
            .unflatten(0, targets.shape[:2])
            .sum((1, 2))
        )


def total_variation(inputs: Tensor) -> Tensor:
    """Mean absolute difference of neighbours, along height plus along width (InvertGrad).

    Args:
        inputs: Shape (V, N, C, H, W).

    Returns:
        Shape (V).
    """
    rows = inputs.diff(dim=-2).abs().flatten(1).mean(1)
    return rows + inputs.diff(dim=-1).abs().flatten(1).mean(1)


def mean_gradients(observation: Observation) -> dict[str, Tensor]:
    """What was received as a gradient, the mean over the local steps (CPL Algorithm 1, lines 4-6).

    A difference of weights is minus the learning rate times the sum of the steps' gradients; the
    paper's line 6 divides by the learning rate alone, and leaves out the sign.

    Returns:
        For each parameter, Shape (V, *shape), of the first round.
    """
    first = {name: value[:, 0] for name, value in observation.update.items()}
    if observation.content == "gradient":
        return first
    scale = -1 / (observation.local_lr * observation.local_steps)
    return {name: value * scale for name, value in first.items()}


def _compared(observation: Observation, parts: Parts) -> dict[str, Tensor]:
    if parts.compared == "all":
        return {}
    return {name: value[:, 0] for name, value in observation.sent.items()}


def _fixed_targets(
    observation: Observation, observed: dict[str, Tensor], parts: Parts
) -> Tensor | None:
    if parts.labels == "joint":
        return None
    if parts.labels == "known":
        labels = observation.granted["labels"].long()
    else:
        scores = classifier_gradient(observation.model, observed, observation.classes)
        labels = RULES[parts.labels](scores, observation.batch_size).sort(1).values
    return functional.one_hot(labels, observation.classes).float()
