"""Objectives of a search for V victims, as functions of flat vectors of unknowns."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Self

from gleak.attacks.matching.codes import Coder
from gleak.attacks.matching.optimizers import Evaluation
from gleak.attacks.matching.parts import SearchParts
from gleak.attacks.observation import Observation
from gleak.core.lazy import torch


@dataclass(frozen=True)
class Problem(ABC):
    """Objective of a search, and the mapping from points to samples and labels.

    The unknowns of a victim are its N samples, flat, and, where labels are optimised, N x classes
    logits.

    Args:
        parts: components of the attack.
        observed: quantities to match, by name; Shape (V, ...) each.
        targets: fixed one-hot labels, Shape (V, N, classes); None if optimised.
        shape: (N, *sample shape).
        classes: number of outputs.
    """

    parts: SearchParts
    observed: dict[str, torch.Tensor]
    targets: torch.Tensor | None
    shape: tuple[int, ...]
    classes: int

    @property
    def like(self) -> torch.Tensor:
        """Observed quantity that has the precision and the device of the computation."""
        return next(iter(self.observed.values()))

    @property
    def device(self) -> torch.device:
        """Device of the computation."""
        return self.like.device

    @property
    def values(self) -> int:
        """Number of unknowns of the samples, which come first."""
        return math.prod(self.shape)

    @property
    def unknowns(self) -> int:
        """Number of unknowns of a victim."""
        return self.values + (self.shape[0] * self.classes if self.targets is None else 0)

    def keep(self, rows: torch.Tensor | slice) -> Self:
        """Return the problem of these victims alone."""
        return replace(
            self,
            observed={name: value[rows] for name, value in self.observed.items()},
            targets=None if self.targets is None else self.targets[rows],
        )

    def in_microbatches(self, count: int) -> Self | None:
        """Return the problem with batches in so many parts, for less memory; None if impossible."""
        return None

    def point(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return the unknowns of a victim's samples, Shape (N, ...); Shape (values)."""
        return inputs.flatten()

    def draw(self, generator: torch.Generator, granted: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Draw the first unknowns of a victim's samples from its random stream; Shape (values)."""
        return self.point(self.parts.start.draw(self.shape, generator, granted).to(self.like))

    def inputs(self, points: torch.Tensor) -> torch.Tensor:
        """Return the samples at these points, not clipped; Shape (V, N, *sample shape)."""
        return points[:, : self.values].unflatten(1, self.shape)

    def clip(self, points: torch.Tensor) -> None:
        """Clip the unknowns of all samples so that their values are in [0, 1], in place."""
        points[:, : self.values].clamp_(0, 1)

    def soft_labels(self, points: torch.Tensor) -> torch.Tensor:
        """Return the label probabilities at these points; Shape (V, N, classes)."""
        if self.targets is not None:
            return self.targets
        logits = points[:, self.values :][:, : self.shape[0] * self.classes]
        return logits.unflatten(1, (self.shape[0], -1)).softmax(2)

    @abstractmethod
    def evaluate(self, points: torch.Tensor) -> Evaluation:
        """Compute the objective and its gradient at V points; Shape (V, P)."""


def mean_gradients(observation: Observation) -> dict[str, torch.Tensor]:
    """Compute the mean gradient over the local steps of the first round; Shape (V, *shape) each.

    A difference of weights is minus the learning rate times the sum of the steps' gradients; line 6
    of CPL's Algorithm 1 divides by the learning rate alone, and omits the sign.
    """
    first = {name: value[:, 0] for name, value in observation.update.items()}
    factor = 1 / observation.protocol.update_scale
    return {name: value * factor for name, value in first.items()} if factor != 1 else first


@dataclass(frozen=True)
class CodedProblem(Problem):
    """Problem with codes of the samples as unknowns, and the same objective (ROG Eq. 14).

    ``whole`` is the problem in the values of the samples themselves, ``black`` and ``white`` are
    the codes of images of zeros and of ones, Shape (code size).
    """

    whole: Problem
    coder: Coder
    black: torch.Tensor
    white: torch.Tensor

    @classmethod
    def of(cls, problem: Problem, coder: Coder) -> Self:
        """Reparametrize a problem by the codes of its samples."""
        blank = problem.like.new_zeros(1, *problem.shape[1:])
        with torch.no_grad():
            black, white = coder.encode(torch.cat([blank, blank + 1]))
        common = {field.name: getattr(problem, field.name) for field in fields(Problem)}
        return cls(**common, whole=problem, coder=coder, black=black, white=white)

    @property
    def values(self) -> int:
        return self.shape[0] * len(self.black)

    @property
    def unknowns(self) -> int:
        return self.values + self.whole.unknowns - self.whole.values

    def keep(self, rows: torch.Tensor | slice) -> Self:
        return replace(super().keep(rows), whole=self.whole.keep(rows))

    def in_microbatches(self, count: int) -> Self | None:
        whole = self.whole.in_microbatches(count)
        return None if whole is None else replace(self, whole=whole)

    def point(self, inputs: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return self.coder.encode(inputs).flatten()

    def clip(self, points: torch.Tensor) -> None:
        codes = points[:, : self.values].unflatten(1, (self.shape[0], -1))
        codes.clamp_(self.black, self.white)

    def inputs(self, points: torch.Tensor) -> torch.Tensor:
        codes = points[:, : self.values].unflatten(1, (self.shape[0], -1))
        return self.coder.decode(codes.flatten(0, 1)).unflatten(0, (-1, self.shape[0]))

    def evaluate(self, points: torch.Tensor) -> Evaluation:
        """Evaluate the original problem, and backpropagate its gradient through the decoder."""
        points = points.detach().requires_grad_()
        inputs, logits = self.inputs(points).flatten(1), points[:, self.values :]
        whole = self.whole.evaluate(torch.cat([inputs.detach(), logits.detach()], 1))
        along, rest = whole.gradient.split([inputs.shape[1], logits.shape[1]], 1)
        (gradient,) = torch.autograd.grad(inputs, points, along)
        gradient[:, self.values :] = rest
        return replace(whole, gradient=gradient)
