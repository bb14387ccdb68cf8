"""`LBFGSState` compared with `torch.optim.LBFGS`, problem by problem."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from gleak.attacks.matching.optimizers import OptimizerState
from gleak.attacks.matching.quasi_newton import LBFGS

UNKNOWNS = 130
STEPS = 125
LR = 0.05
Value = Callable[[Tensor], Tensor]


def curved(scale: Tensor) -> Value:
    """Compute a convex function with curvatures of many sizes; Shape (..., P) to (...)."""
    return lambda x: (scale * (x.square() + 0.1 * x**4)).sum(-1) + (x.diff() ** 2).sum(-1)


@pytest.fixture
def scales() -> Tensor:
    random = torch.Generator().manual_seed(0)
    return 1e3 * 10 ** (torch.rand(5, UNKNOWNS, generator=random, dtype=torch.double))


@pytest.fixture
def starts() -> Tensor:
    random = torch.Generator().manual_seed(1)
    return torch.randn(5, UNKNOWNS, generator=random, dtype=torch.double)


def torch_path(value: Value, start: Tensor, history: int, steps: int) -> Tensor:
    """Return the last point of torch's optimizer, without tolerances."""
    point = start.clone().requires_grad_()
    optimizer = torch.optim.LBFGS(
        [point],
        lr=LR,
        max_iter=steps,
        max_eval=10 * steps,
        history_size=history,
        tolerance_grad=0,
        tolerance_change=0,
    )

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = value(point)
        loss.backward()
        return loss

    optimizer.step(closure)
    return point.detach()


def advance(search: OptimizerState, points: Tensor, scales: Tensor, steps: int) -> Tensor:
    for _ in range(steps):
        points = points.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(curved(scales)(points).sum(), points)
        search.prepare(lambda: None)
        points = search.step(points.detach(), gradient)
    return points.detach()


def begin(points: Tensor, history: int) -> OptimizerState:
    return LBFGS(history=history, lr=LR).begin(points, 300)


def assert_same(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("history", [1, 3, 100])
def test_every_problem_takes_torchs_path(history: int, scales: Tensor, starts: Tensor):
    found = advance(begin(starts, history), starts, scales, STEPS)
    for point, start, scale in zip(found, starts, scales, strict=True):
        expected = torch_path(curved(scale), start, history, STEPS)
        assert (expected - start).norm() > 1
        assert_same(point, expected)


@pytest.mark.parametrize("history", [3, 100])
def test_a_restarted_problem_forgets_and_the_others_do_not(
    history: int, scales: Tensor, starts: Tensor
):
    """Problem 1 restarts after 7 steps, problem 3 after 7 and 20."""
    search, points = begin(starts, history), starts
    for steps, again in [(7, [1, 3]), (13, [3]), (STEPS - 20, [])]:
        points = advance(search, points, scales, steps).clone()
        if again:
            rows = torch.zeros(5, dtype=torch.bool)
            rows[again] = True
            search.restart(rows)
            points[again] = starts[again]
    for row, steps in enumerate([STEPS, STEPS - 7, STEPS, STEPS - 20, STEPS]):
        assert_same(points[row], torch_path(curved(scales[row]), starts[row], history, steps))


@pytest.mark.parametrize("history", [3, 100])
def test_problems_kept_go_on_as_before(history: int, scales: Tensor, starts: Tensor):
    search = begin(starts, history)
    points = advance(search, starts, scales, 30)
    kept = torch.tensor([True, False, False, True, True])
    search.keep(kept)
    points = advance(search, points[kept], scales[kept], STEPS - 30)
    for point, start, scale in zip(points, starts[kept], scales[kept], strict=True):
        assert_same(point, torch_path(curved(scale), start, history, STEPS))


def test_a_problem_that_is_not_finite_spoils_no_other_and_recovers_by_a_restart(
    scales: Tensor, starts: Tensor
):
    spoilt = starts.clone()
    spoilt[2] = torch.nan
    search = begin(spoilt, 3)
    points = advance(search, spoilt, scales, 5).clone()
    assert points[2].isnan().all()
    search.restart(torch.arange(5) == 2)
    points[2] = starts[2]
    found = advance(search, points, scales, 15)
    for row, steps in enumerate([20, 20, 15, 20, 20]):
        assert_same(found[row], torch_path(curved(scales[row]), starts[row], 3, steps))
