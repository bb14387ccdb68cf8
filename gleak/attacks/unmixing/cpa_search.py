"""Objective and search of the cocktail party attack (CPA)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from gleak.attacks.matching.optimizers import GradientOptimizerSpec
from gleak.attacks.unmixing.edges import differences, variation_weights
from gleak.attacks.unmixing.mixtures import White
from gleak.core.lazy import torch
from gleak.runtime.checkpointing import Part, strip_prefix
from gleak.runtime.progress import Progress

Term = Callable[["torch.Tensor"], "torch.Tensor"]
"""Function from rows of length 1, Shape (V, n, n), to a term of the objective; Shape (V)."""
CHECKED_EVERY = 50
GAUSSIAN = 0.37456720749144
"""Mean log cosh of a standard normal variable."""


@dataclass(frozen=True)
class Objective:
    """Sum of terms, minimised over unmixing matrices of V victims (CPA Eq. 10 and 11).

    Only the direction of a matrix's rows counts. Means are over rows, so that a weight has the same
    effect for every number of sources.

    Args:
        terms: of each victim's sources, with their weights.
    """

    terms: list[tuple[float, Term]]

    def evaluate(self, matrices: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute value and gradient.

        Args:
            matrices: Shape (V, n, n).

        Returns:
            Shape (V) and (V, n, n).
        """
        matrices = matrices.detach().requires_grad_()
        rows = torch.nn.functional.normalize(matrices, dim=2)
        nothing = 0 * rows.sum((1, 2))
        value = sum((weight * term(rows) for weight, term in self.terms), start=nothing)
        (gradient,) = torch.autograd.grad(value.sum(), matrices)
        return value.detach(), gradient


def negentropy(white: White, reference: float = 0.0) -> Term:
    """Return minus J of Eq. 8 with a = 1, over the centred sources, whose variance is one.

    Eq. 8 is ambiguous about the square; as in the authors' code it is that of the mean log cosh,
    though their code then sets the term to zero. Without a reference, J grows from sources with
    long tails (Laplace: 0.338) over Gaussian to uniform ones (0.401), so it is no measure of the
    distance from a Gaussian.

    Args:
        white: whitened signals.
        reference: mean log cosh that is subtracted; `GAUSSIAN` in the negentropy's usual
            approximation (Hyvarinen and Oja 2000, Eq. 25).
    """
    signals = white.signals

    def term(rows: torch.Tensor) -> torch.Tensor:
        magnitudes = (rows @ signals).abs()
        log_cosh = magnitudes + torch.nn.functional.softplus(-2 * magnitudes) - math.log(2)
        return -(log_cosh.mean(2) - reference).square().mean(1)

    return term


def total_variation(white: White, shape: tuple[int, ...]) -> Term:
    """Return Eq. 3 of sources that are images of a shape (C, H, W)."""
    victims, count, _ = white.signals.shape
    steps = differences(white.signals.reshape(-1, *shape), orders=1)
    steps = (steps * variation_weights(shape).to(steps)).reshape(victims, count, -1)

    def term(rows: torch.Tensor) -> torch.Tensor:
        return (rows @ steps).abs().sum(2).mean(1)

    return term


def magnitude(white: White) -> Term:
    """Return the mean magnitude of sources, for embeddings that are mostly zero (Eq. 11, L1)."""
    signals = white.uncentred
    return lambda rows: (rows @ signals).abs().mean((1, 2))


def mixed_signs(white: White) -> Term:
    """Return the smaller of positive and negative parts, for embeddings of one sign (Eq. 11).

    Section IV-A does not specify the norm of each part; as in the reference it is Euclidean.
    """
    signals = white.uncentred

    def term(rows: torch.Tensor) -> torch.Tensor:
        sources = rows @ signals
        return torch.minimum(sources.relu().norm(dim=2), (-sources).relu().norm(dim=2)).mean(1)

    return term


def dependence(temperature: float) -> Term:
    """Return the mean of exp(T |cosine|) - 1 over pairs of rows (Eq. 9; reference: also i = j)."""

    def term(rows: torch.Tensor) -> torch.Tensor:
        count = rows.shape[1]
        cosines = (rows @ rows.mT).abs() * (1 - torch.eye(count).to(rows))
        return torch.expm1(temperature * cosines).sum((1, 2)) / max(1, count * (count - 1))

    return term


@dataclass(frozen=True)
class DescentResult:
    """Result of the search of each of V victims.

    Args:
        matrices: Shape (V, n, n), with the least objective among the checked iterations.
        objective: Shape (V), of these matrices.
        iterations: Shape (V).
    """

    matrices: torch.Tensor
    objective: torch.Tensor
    iterations: torch.Tensor


def descend(
    objective: Objective,
    first: torch.Tensor,
    optimizer: GradientOptimizerSpec,
    iterations: int,
    tolerance: float | None,
    part: Part,
) -> DescentResult:
    """Minimise from the first matrices on; a victim stops when its objective stalls.

    It stalls when it has decreased by less than ``tolerance``, relative to its size, since the last
    check, `CHECKED_EVERY` iterations before. Without a tolerance the budget is spent.

    Args:
        objective: of V victims.
        first: Shape (V, n, n).
        optimizer: update rule of the matrices.
        iterations: budget of every victim.
        tolerance: see above.
        part: of the job's journal; the search resumes from its checkpoint.
    """
    descent = Descent(first.flatten(1), optimizer, iterations, tolerance)
    descent.resume(part.stored)
    with Progress(iterations, "unmixing") as progress, part.stepping():
        for _ in part.steps(lambda: not descent.over, descent.state):
            values, gradients = objective.evaluate(descent.points.view_as(first))
            if descent.judge(values):
                done = descent.number - progress.done
                progress.advance(done, objective=values.mean().item())
            descent.step(gradients.flatten(1))
        part.keep(descent.state())
    return DescentResult(descent.best.view_as(first), descent.least, descent.spent)


class Descent:
    """State of the search of V victims; arguments as for `descend`."""

    KEPT = ("points", "best", "least", "spent", "resting")

    def __init__(
        self,
        points: torch.Tensor,
        optimizer: GradientOptimizerSpec,
        iterations: int,
        tolerance: float | None,
    ) -> None:
        self.points, self.iterations = points, iterations
        self.least_gain = -torch.inf if tolerance is None else tolerance
        self.optimizer = optimizer.begin(points, iterations)
        self.best, self.least = points.clone(), points.new_full((len(points),), torch.inf)
        self.spent = torch.zeros(len(points)).long()
        self.resting = torch.zeros(len(points)).bool()
        self.number = 0

    @property
    def over(self) -> bool:
        """True if all victims have stopped, or the budget is spent."""
        return bool(self.resting.all()) or self.number > self.iterations

    def judge(self, values: torch.Tensor) -> bool:
        """Update the least objective and the stopped victims; return True if this was a check."""
        if self.number % CHECKED_EVERY and self.number != self.iterations:
            return False
        running = ~self.resting.to(values.device)
        rests = self.least - values < self.least_gain * values.abs()
        better = running & (values < self.least)
        self.best[better], self.least[better] = self.points[better], values[better]
        self.spent[running.cpu()] = self.number
        self.resting |= rests.cpu()
        return True

    def step(self, gradients: torch.Tensor) -> None:
        """Move, unless that was the last check."""
        self.number += 1
        if not self.over:
            self.points = self.optimizer.step(self.points, gradients)

    def state(self) -> dict[str, torch.Tensor]:
        """Return the state that one step passes to the next."""
        moments = {f"optimizer.{name}": each for name, each in self.optimizer.state().items()}
        own = {name: getattr(self, name) for name in self.KEPT}
        return {"number": torch.tensor(self.number), **own, **moments}

    def resume(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore the state that `state` returned, if there is one."""
        if not state:
            return
        self.number = int(state["number"])
        tensors = {name: torch.from_numpy(value) for name, value in state.items()}
        for name in self.KEPT:
            setattr(self, name, tensors[name].to(getattr(self, name).device))
        moments = strip_prefix("optimizer", tensors)
        self.optimizer.resume({name: each.to(self.points.device) for name, each in moments.items()})
