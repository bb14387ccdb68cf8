"""`LineSearchState` beside torch's L-BFGS with strong Wolfe conditions, problem by problem."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from gleak.attacks.matching.line_search import TRIES, LineSearchLBFGS
from gleak.attacks.matching.optimizers import Evaluation, OptimizerState
from gleak.attacks.matching.quasi_newton import LBFGS
from gleak.attacks.matching.search import Records, Search
from gleak.runtime.checkpointing import Journal
from gleak.runtime.progress import Progress
from tests.attacks.matching.conftest import Bowl

Make = Callable[..., Any]
Value = Callable[[Tensor], Tensor]
LEVEL = 1e-8
SCALES = 10 ** torch.linspace(0, 3, 12, dtype=torch.double)


def rosenbrock(x: Tensor) -> Tensor:
    before, after = x[..., :-1], x[..., 1:]
    return (100 * (after - before**2) ** 2 + (1 - before) ** 2).sum(-1)


def quadratic(x: Tensor) -> Tensor:
    return (SCALES * x.square()).sum(-1) / 2


def quartic(x: Tensor) -> Tensor:
    return (SCALES * (x.square() + x**4)).sum(-1) + x.diff().square().sum(-1)


def barrier(x: Tensor) -> Tensor:
    """Compute a function with its minimum 0 at the scales' roots, NaN from 0 downwards."""
    ratio = x / SCALES.sqrt()
    return (ratio - 1 - ratio.log()).sum(-1)


@pytest.fixture
def starts() -> Tensor:
    random = torch.Generator().manual_seed(0)
    return torch.randn(4, 12, generator=random, dtype=torch.double) / 2 + 1


def evaluated(value: Value, points: Tensor) -> Evaluation:
    points = points.detach().requires_grad_()
    objective = value(points)
    (gradient,) = torch.autograd.grad(objective.sum(), points)
    return Evaluation(objective.detach(), objective.detach(), gradient)


def advance(
    search: OptimizerState, value: Value, points: Tensor, steps: int
) -> tuple[Tensor, Tensor]:
    """Return the next points, and the values on the way; Shape (steps, V)."""
    values = []
    for _ in range(steps):
        found = evaluated(value, points)
        values.append(found.objective)
        search.prepare(lambda: None)
        running = torch.ones(len(points), dtype=torch.bool)
        points = search.advance(Bowl, points, found, running)  # type: ignore[arg-type]
    return points, torch.stack(values)


def torch_values(value: Value, start: Tensor, steps: int) -> Tensor:
    point, values = start.clone().requires_grad_(), []
    optimizer = torch.optim.LBFGS(
        [point],
        max_iter=steps,
        max_eval=steps,
        history_size=20,
        tolerance_grad=0,
        tolerance_change=0,
        line_search_fn="strong_wolfe",
    )

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = value(point)
        loss.backward()
        values.append(loss.detach())
        return loss

    optimizer.step(closure)
    return torch.stack(values)


def evaluations(values: Tensor) -> int:
    return int((values <= LEVEL).nonzero()[0])


@pytest.mark.parametrize("value", [rosenbrock, quadratic, quartic])
def test_it_needs_about_as_many_evaluations_as_torch(value: Value, starts: Tensor):
    _, values = advance(LineSearchLBFGS().begin(starts, 200), value, starts, 200)
    for row, start in enumerate(starts):
        expected = torch_values(value, start, 200)
        if expected.min() <= LEVEL:
            assert evaluations(values[:, row]) <= 1.1 * evaluations(expected)
        else:
            assert values[:, row].min() == pytest.approx(float(expected.min())), "of a local one"


def test_problems_that_are_lost_without_a_line_search_converge(starts: Tensor):
    starts = 10 * starts.abs()
    _, values = advance(LBFGS(history=20).begin(starts, 200), barrier, starts, 200)
    assert values[-1].isnan().all()
    _, values = advance(LineSearchLBFGS().begin(starts, 200), barrier, starts, 200)
    assert (values <= LEVEL).any(0).all()


@pytest.mark.parametrize("value", [rosenbrock, barrier])
def test_no_problem_depends_on_the_others(value: Value, starts: Tensor):
    """Nor on problems that are not finite, and not on those taken out on the way."""
    spoilt = starts.abs().clone()
    spoilt[2] = torch.nan
    search = LineSearchLBFGS(history=5).begin(spoilt, 60)
    points, before = advance(search, value, spoilt, 20)
    kept = torch.tensor([0, 3])
    search.keep(kept)
    _, after = advance(search, value, points[kept], 20)
    for place, row in enumerate(kept.tolist()):
        start = starts.abs()[row : row + 1]
        _, alone = advance(LineSearchLBFGS(history=5).begin(start, 60), value, start, 40)
        found = torch.cat([before[:, row], after[:, place]])
        torch.testing.assert_close(found, alone[:, 0], equal_nan=True, rtol=1e-6, atol=1e-9)


def test_a_restarted_problem_begins_anew_and_the_others_do_not(starts: Tensor):
    search = LineSearchLBFGS().begin(starts, 60)
    points, _ = advance(search, quartic, starts, 15)
    search.restart(torch.arange(4) == 1)
    points[1] = starts[1]
    found, _ = advance(search, quartic, points, 15)
    undisturbed, _ = advance(LineSearchLBFGS().begin(starts, 60), quartic, starts, 30)
    afresh, _ = advance(LineSearchLBFGS().begin(starts, 60), quartic, starts, 15)
    undisturbed[1] = afresh[1]
    torch.testing.assert_close(found, undisturbed)


def test_a_stored_state_goes_on_as_before(starts: Tensor):
    search = LineSearchLBFGS().begin(starts, 60)
    points, _ = advance(search, rosenbrock, starts, 25)
    stored = {name: value.clone() for name, value in search.state().items()}
    expected, _ = advance(search, rosenbrock, points, 15)
    resumed = LineSearchLBFGS().begin(starts, 60)
    resumed.resume(stored)
    assert torch.equal(advance(resumed, rosenbrock, points, 15)[0], expected)


@pytest.mark.parametrize("start", ["minimum", "not finite"])
def test_an_attempt_without_a_step_downwards_ends(start: str, starts: Tensor):
    starts = starts.clone()
    starts[1] = 0 if start == "minimum" else torch.nan
    points, _ = advance(LineSearchLBFGS().begin(starts, 60), quadratic, starts, 3 * TRIES)
    assert points.isfinite().all(1).tolist() == [True, False, True, True]


def test_a_direction_that_does_not_descend_is_given_up_twice(starts: Tensor):
    """The gradient has the wrong sign after five evaluations, so every step rises."""
    search = LineSearchLBFGS().begin(starts, 60)
    points, _ = advance(search, quartic, starts, 5)
    base = search.base.clone()  # type: ignore[attr-defined]
    lost = None
    for number in range(3 * TRIES):
        found = evaluated(quartic, points)
        wrong = Evaluation(found.objective + 1e9, found.distance, -found.gradient)
        search.prepare(lambda: None)
        points = search.advance(Bowl, points, wrong, torch.ones(4, dtype=torch.bool))  # type: ignore[arg-type]
        if lost is None and points.isnan().all():
            lost = number
    assert torch.equal(search.base, base)  # type: ignore[attr-defined]
    assert lost is not None
    assert lost <= 2 * TRIES


@dataclass
class Barrier(Bowl):
    """Stands in for a problem: its minimum at the targets, NaN from 0 downwards."""

    def evaluate(self, points: Tensor) -> Evaluation:
        ratio = points / self.observed["target"]
        distance = (ratio - 1 - ratio.log()).sum(1)
        gradient = (1 - 1 / ratio) / self.observed["target"]
        return Evaluation(distance, distance, gradient)


@pytest.mark.parametrize("box", [False, True])
def test_a_search_goes_on_where_a_step_ends_beyond_the_finite(make_parts: Make, box: bool):
    targets = torch.tensor([[0.1, 0.5], [0.02, 0.9], [0.3, 0.3]])

    def run(optimizer: Any) -> tuple[Any, Any]:
        parts = make_parts(optimizer=optimizer, iterations=120, box=box)
        problem: Any = Barrier(parts, {"target": targets})
        records = Records((3, 1, 2), 120)
        search = Search(problem, lambda row, attempt: torch.full((2,), 1.0 + row), records)
        with Progress(120, "test") as progress:
            return search.run(progress, Journal().part()), records

    search_state, records = run(LineSearchLBFGS())
    torch.testing.assert_close(search_state.points, targets, rtol=1e-2, atol=1e-3)
    assert np.isfinite(records.objective).all()
    failed, _ = run(LBFGS(inner=1))
    assert (failed.objective > 10 * search_state.objective).all()
