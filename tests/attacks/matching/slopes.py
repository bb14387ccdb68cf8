"""Check of gradients against central differences, and the choice of their method."""

from __future__ import annotations

import torch

from gleak.attacks.matching.choice import verified_method
from gleak.attacks.matching.gradients import ClientTraining, Gradients
from gleak.attacks.matching.problem import Problem


def choose_gradients(training: ClientTraining) -> Gradients:
    return verified_method(training)(training)


def assert_gradient_of_objective(problem: Problem, victims: int, rtol: float) -> None:
    """Compare the gradient of a problem with differences along a random direction."""
    stream = torch.Generator().manual_seed(0)
    points = torch.rand(victims, problem.unknowns, generator=stream)
    direction = torch.randn(victims, problem.unknowns, generator=stream)
    slope = (problem.evaluate(points).gradient * direction).sum(1)
    ahead, behind = (
        problem.evaluate(points + step * direction).objective for step in (1e-2, -1e-2)
    )
    torch.testing.assert_close(slope, (ahead - behind) / 2e-2, rtol=rtol, atol=1e-3)
