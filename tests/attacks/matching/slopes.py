"""Checks of problems: their gradients against central differences, and the victims kept."""

from __future__ import annotations

import torch

from gleak.attacks.matching.choice import verified_method
from gleak.attacks.matching.gradients import ClientTraining, Gradients
from gleak.attacks.matching.problem import Problem


def choose_gradients(training: ClientTraining) -> Gradients:
    return verified_method(training)(training)


def points_of(problem: Problem) -> torch.Tensor:
    """Draw points of a problem's victims, in its precision."""
    stream = torch.Generator().manual_seed(0)
    victims = len(problem.like)
    return torch.rand(victims, problem.unknowns, generator=stream).to(problem.like)


def assert_gradient_of_objective(problem: Problem, rtol: float) -> None:
    """Compare the gradient of a problem with differences along a random direction."""
    points = points_of(problem)
    step = 1e-6 if points.dtype == torch.double else 1e-2
    direction = torch.randn(points.shape, generator=torch.Generator().manual_seed(3)).to(points)
    slope = (problem.evaluate(points).gradient * direction).sum(1)
    ahead, behind = (
        problem.evaluate(points + sign * step * direction).objective for sign in (1, -1)
    )
    torch.testing.assert_close(slope, (ahead - behind) / (2 * step), rtol=rtol, atol=1e-3)


def assert_victims_are_kept(problem: Problem) -> None:
    """Compare the evaluations of some of a problem's victims with those among all."""
    points = points_of(problem)
    every = problem.evaluate(points)
    for rows in (slice(1, 2), torch.arange(len(points)) != 1):
        some = problem.keep(rows).evaluate(points[rows])
        torch.testing.assert_close(some.objective, every.objective[rows])
        torch.testing.assert_close(some.gradient, every.gradient[rows], rtol=1e-3, atol=1e-6)
