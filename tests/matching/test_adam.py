"""`AdamState` beside `torch.optim.Adam`, problem by problem."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from gleak.matching.optimizers.adam import Adam

STEPS = 60


@pytest.fixture
def gradients() -> Tensor:
    random = torch.Generator().manual_seed(0)
    return torch.randn(STEPS, 4, 7, generator=random, dtype=torch.double)


def torch_path(start: Tensor, gradients: Tensor, rates: list[float]) -> Tensor:
    point = start.clone().requires_grad_()
    optimizer = torch.optim.Adam([point])
    for gradient, rate in zip(gradients, rates, strict=True):
        optimizer.param_groups[0]["lr"] = rate
        point.grad = gradient.clone()
        optimizer.step()
    return point.detach()


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("schedule", ["constant", "steps", "cosine"])
def test_every_problem_takes_torchs_path(signed: bool, schedule: str, gradients: Tensor) -> None:
    """Problem 1 begins anew after 20 steps; problem 3 is taken out after 40."""
    spec = Adam(lr=0.3, signed=signed, schedule=schedule)
    points = starts = gradients[0] / 2
    search = spec.begin(points, STEPS)
    left = torch.arange(4)
    for number in range(STEPS):
        if number == 20:
            points = points.clone()
            search.restart(left == 1)
            points[1] = starts[1]
        if number == 40:
            kept = left != 3
            search.keep(kept)
            points, left = points[kept], left[kept]
        points = search.step(points, gradients[number, left])
    rates = [spec.rate(number / STEPS) for number in range(STEPS)]
    used = gradients.sign() if signed else gradients
    for row in (0, 1, 2):
        begun = 20 if row == 1 else 0
        expected = torch_path(starts[row], used[begun:, row], rates[begun:])
        torch.testing.assert_close(points[row], expected)


def test_rates_follow_their_schedules() -> None:
    shares = [0, 0.374, 0.375, 0.624, 0.625, 0.874, 0.875, 1]
    steps = [Adam(lr=2, schedule="steps").rate(share) for share in shares]
    assert steps == pytest.approx([2, 2, 0.2, 0.2, 0.02, 0.02, 0.002, 0.002])
    cosine = Adam(lr=2, schedule="cosine").rate
    assert [cosine(0), cosine(0.25), cosine(1)] == pytest.approx([2, 1 + math.sqrt(0.5), 0])
    assert {Adam(lr=2).rate(share) for share in shares} == {2}
