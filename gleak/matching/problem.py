"""Objectives of a search for V victims, as functions of flat vectors of unknowns."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

import torch
from torch import Generator, Tensor
from typing_extensions import override

if TYPE_CHECKING:
    from gleak.matching.codes.base import Coder
    from gleak.matching.parts import SearchParts
    from gleak.observation import Observation

IMAGES = 5


@dataclass(frozen=True)
class Evaluation:
    """Objective, distance and descent information at V points.

    Args:
        objective: Shape (V), distance and priors, relative to the distance's scale.
        distance: Shape (V), of what is matched alone, relative likewise.
        gradient: Shape (V, P), of the objective.
    """

    objective: Tensor
    distance: Tensor
    gradient: Tensor

    def plus(self, other: Evaluation, weight: float) -> Evaluation:
        """Of this objective and ``weight`` times another at the same points."""
        return Evaluation(
            self.objective + weight * other.objective,
            self.distance + weight * other.distance,
            self.gradient + weight * other.gradient,
        )


@dataclass(frozen=True)
class Problem(ABC):
    """What is matched, and how points of the search become samples and labels.

    Unknowns of a victim: its N samples, flat, and where labels are optimised also N x classes
    logits.

    Args:
        parts: of the attack, as far as the search goes by them.
        observed: what is matched, by name; Shape (V, ...) each.
        targets: fixed one-hot labels, Shape (V, N, classes); None if optimised.
        shape: (N, *sample shape).
        classes: number of outputs.
    """

    parts: SearchParts
    observed: dict[str, Tensor]
    targets: Tensor | None
    shape: tuple[int, ...]
    classes: int

    @property
    def device(self) -> torch.device:
        """Where it is computed."""
        return next(iter(self.observed.values())).device

    @property
    def values(self) -> int:
        """Unknowns that make the samples; they come first."""
        return math.prod(self.shape)

    @property
    def unknowns(self) -> int:
        """Length of a point."""
        return self.values + (self.shape[0] * self.classes if self.targets is None else 0)

    def keep(self, rows: Tensor | slice) -> Self:
        """The problem of these victims alone."""
        return replace(
            self,
            observed={name: value[rows] for name, value in self.observed.items()},
            targets=None if self.targets is None else self.targets[rows],
        )

    def point(self, inputs: Tensor) -> Tensor:
        """The first unknowns of a victim with these samples, Shape (N, ...); Shape (values)."""
        return inputs.flatten()

    def draw(self, generator: Generator, granted: Mapping[str, Tensor]) -> Tensor:
        """Where a victim's samples begin; Shape (values), on the problem's device.

        Args:
            generator: the victim's own stream.
            granted: to this victim, what the start asks for.
        """
        return self.point(self.parts.start.draw(self.shape, generator, granted).to(self.device))

    def inputs(self, points: Tensor) -> Tensor:
        """Samples at these points, as they are; Shape (V, N, *sample shape)."""
        return points[:, : self.values].unflatten(1, self.shape)

    def soft_labels(self, points: Tensor) -> Tensor:
        """Label probabilities at these points; Shape (V, N, classes)."""
        if self.targets is not None:
            return self.targets
        return points[:, self.values :].unflatten(1, (self.shape[0], -1)).softmax(2)

    @abstractmethod
    def evaluate(self, points: Tensor) -> Evaluation:
        """Objective and gradient at V points; Shape (V, P)."""


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


@dataclass(frozen=True)
class CodedProblem(Problem):
    """Unknowns are the codes of a victim's samples; what is minimised is as it was.

    Args:
        whole: the problem in the values of the samples themselves.
        coder: between samples and codes.
        code_size: unknowns of one sample.
    """

    whole: Problem
    coder: Coder
    code_size: int

    @classmethod
    def of(cls, problem: Problem, coder: Coder) -> Self:
        """This problem in the codes of its samples."""
        blank = next(iter(problem.observed.values())).new_zeros(1, *problem.shape[1:])
        with torch.no_grad():
            size = coder.encode(blank).shape[1]
        return cls(
            parts=problem.parts,
            observed=problem.observed,
            targets=problem.targets,
            shape=problem.shape,
            classes=problem.classes,
            whole=problem,
            coder=coder,
            code_size=size,
        )

    @property
    @override
    def values(self) -> int:
        return self.shape[0] * self.code_size

    @override
    def keep(self, rows: Tensor | slice) -> Self:
        return replace(super().keep(rows), whole=self.whole.keep(rows))

    @override
    def point(self, inputs: Tensor) -> Tensor:
        with torch.no_grad():
            return self.coder.encode(inputs).flatten()

    @override
    def inputs(self, points: Tensor) -> Tensor:
        codes = points[:, : self.values].unflatten(1, (self.shape[0], -1))
        return self.coder.decode(codes.flatten(0, 1)).unflatten(0, (-1, self.shape[0]))

    @override
    def evaluate(self, points: Tensor) -> Evaluation:
        """The derivative at the samples goes back through the decoder."""
        points = points.detach().requires_grad_()
        inputs, logits = self.inputs(points).flatten(1), points[:, self.values :]
        whole = self.whole.evaluate(torch.cat([inputs.detach(), logits.detach()], 1))
        along, rest = whole.gradient.split([inputs.shape[1], logits.shape[1]], 1)
        (gradient,) = torch.autograd.grad(inputs, points, along)
        gradient[:, self.values :] = rest
        return replace(whole, gradient=gradient)
