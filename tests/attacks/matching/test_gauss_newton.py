"""Gauss-Newton steps on tiny clients, whose samples are known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor

from gleak.attacks.dlg import CPL
from gleak.attacks.matching import gauss_newton as module
from gleak.attacks.matching.engine import match
from gleak.attacks.matching.gauss_newton import (
    GaussNewton,
    GaussNewtonState,
    Linearisation,
    damped_step,
)
from gleak.attacks.matching.gradient_matching import GradientMatching
from gleak.attacks.matching.parts import LayerWeights, Parts
from gleak.attacks.matching.priors import TotalVariation
from gleak.core.errors import IncompatibleError
from gleak.core.registry import parse

Make = Callable[..., Any]


@pytest.fixture
def gauss_newton(make_parts: Make) -> Callable[..., Parts]:
    def make(**fields: Any) -> Parts:
        parts = {name: fields.pop(name) for name in set(fields) - set(GaussNewton.model_fields)}
        standard = {"iterations": 40, "threshold": 1e-11, "optimizer": GaussNewton(**fields)}
        return make_parts(**{**standard, **parts})

    return make


@pytest.mark.parametrize(
    ("samples", "order"),
    [(1, "auto"), (2, "together"), pytest.param(2, "auto", marks=pytest.mark.slow)],
)
def test_samples_are_recovered(
    make_observation: Make, gauss_newton: Make, samples: int, order: str
):
    observation, inputs, _ = make_observation("lenet+width=6", victims=3, samples=samples)
    found = match(observation.of_victim(1), gauss_newton(order=order))
    assert found.converged.all()
    assert abs(torch.from_numpy(found.inputs[0]) - inputs[1]).max() < 1e-2


@pytest.mark.parametrize("between", [7, 20])
def test_rare_looks_at_the_remainder_change_no_step(monkeypatch: pytest.MonkeyPatch, between: int):
    random = torch.Generator().manual_seed(0)
    matrix = torch.randn(12, 9, generator=random, dtype=torch.double)
    here = Linearisation(lambda x: matrix @ x - 1, torch.zeros(9, dtype=torch.double))
    products: list[int] = []
    times = here.times
    monkeypatch.setattr(here, "times", lambda d: (products.append(1), times(d))[1])
    expected = damped_step(here, here.slope, 0.1, 1e-6, 300)
    needed = len(products)
    monkeypatch.setattr(module, "evaluations_between_reads", lambda device: between)
    assert torch.equal(damped_step(here, here.slope, 0.1, 1e-6, 300), expected)
    assert needed < len(products) - needed == -(-needed // between) * between


def test_their_sum_of_squares_is_the_distance(make_observation: Make, gauss_newton: Make):
    """Of what was sent and is not skipped."""
    observation, inputs, _ = make_observation(victims=2)
    sent = {"0.weight": torch.rand(observation.update["0.weight"].shape) < 0.5}
    observation = replace(observation, sent=sent)
    problem = GradientMatching.of(observation, gauss_newton(skip="2"))
    points = torch.rand_like(inputs.flatten(1))
    names = [name for layer in problem.layers for name in layer]
    assert "2.weight" not in names
    truth = problem.keep(slice(1, 2)).residuals(inputs[1].flatten().double(), names)
    assert truth.dtype == torch.double
    assert truth.square().sum() < 1e-12 * problem.scale[1]
    for row, distance in enumerate(problem.evaluate(points).distance * problem.scale):
        residuals = problem.keep(slice(row, row + 1)).residuals(points[row].double(), names)
        assert residuals.square().sum().item() == pytest.approx(float(distance), rel=1e-4)


def advanced(problem: GradientMatching, state: GaussNewtonState, points: Tensor) -> Tensor:
    evaluation = problem.evaluate(points)
    return state.advance(problem, points, evaluation, torch.ones(len(points)).bool())


def test_layers_are_added_from_the_last(make_observation: Make, gauss_newton: Make):
    observation, inputs, _ = make_observation(victims=1)
    parts = gauss_newton(steps=2)
    problem = GradientMatching.of(observation, parts)
    points = torch.rand_like(inputs.flatten(1))
    state = parts.optimizer.begin(points, 40)
    matched = []
    for _ in range(7):
        matched.append(problem.layers[state._layers_left(problem, 0) :])
        points = advanced(problem, state, points)
    assert problem.layers[-1] == ["7.weight", "7.bias"]
    assert matched[0] == problem.layers[-1:]
    assert matched[-1] == problem.layers
    assert all(len(one) <= len(other) for one, other in pairwise(matched))


def test_a_search_that_cannot_gain_is_given_up(make_observation: Make, gauss_newton: Make):
    """At the true samples nothing is left to gain but rounding."""
    observation, inputs, _ = make_observation(victims=1, samples=1)
    parts = gauss_newton(products=10)
    problem, points = GradientMatching.of(observation, parts), inputs.flatten(1)
    state = parts.optimizer.begin(points, 40)
    for _ in range(40):
        points = advanced(problem, state, points) if points.isfinite().all() else points
    assert not points.isfinite().all()


def test_a_restart_begins_with_the_last_layer(make_observation: Make, gauss_newton: Make):
    observation, inputs, _ = make_observation(victims=2)
    parts = gauss_newton(steps=1)
    problem = GradientMatching.of(observation, parts)
    start = torch.rand_like(inputs.flatten(1))
    state = parts.optimizer.begin(start, 40)
    first = advanced(problem, state, start)
    moved = advanced(problem, state, first)
    state.restart(torch.tensor([True, False]))
    again = advanced(problem, state, torch.stack([start[0], moved[1]]))
    assert torch.equal(again[0], first[0])
    assert not torch.equal(again[1], first[1])


@pytest.mark.parametrize(
    "fields",
    [
        {"distance": parse("distance", "cosine")},
        {"distance": parse("distance", "signs")},
        {"code": parse("code", "bicubic")},
        {"draws": "searched"},
        {"layers": LayerWeights(beta=2)},
        {"priors": [TotalVariation(0.1)]},
    ],
    ids=str,
)
def test_other_objectives_are_refused(gauss_newton: Make, fields: dict[str, object]):
    parts = gauss_newton(**fields)
    with pytest.raises(IncompatibleError, match=r"squared distance.*optimizer=lbfgs"):
        parts.check(parse("dataset", "digits"))


def test_an_attack_refuses_them_before_it_is_run():
    attack = parse("attack", "cpl+alpha=0.1+optimizer=gauss_newton")
    levels = {"dataset": "digits", "model": "lenet", "client": "fedsgd"}
    with pytest.raises(IncompatibleError, match="label term"):
        attack.check(*(parse(kind, text) for kind, text in levels.items()))
    assert CPL(optimizer=GaussNewton()).cost().evaluations == 300 * GaussNewton().products


def curved(point: Tensor) -> Tensor:
    """Compute three functions of four unknowns; the last one is constant."""
    return torch.stack([point.prod(), point.sin() @ point, point.new_ones(())])


@pytest.fixture
def point() -> Tensor:
    return torch.tensor([0.3, -1.2, 0.7, 2.0], dtype=torch.double)


def test_products_are_those_with_the_formed_jacobian(point: Tensor):
    here = Linearisation(curved, point)
    formed = torch.autograd.functional.jacobian(curved, point)
    for direction in torch.eye(4, dtype=torch.double):
        torch.testing.assert_close(here.times(direction), formed @ direction)
    for weights in torch.eye(3, dtype=torch.double):
        torch.testing.assert_close(here.transposed(weights), formed.T @ weights)
    torch.testing.assert_close(here.slope, formed.T @ curved(point))
    torch.testing.assert_close(here.moved(point), curved(2 * point))


@pytest.mark.parametrize("damping", [1e-3, 1.0, 1e3])
def test_a_step_solves_the_damped_equations(point: Tensor, damping: float):
    here = Linearisation(curved, point)
    formed = torch.autograd.functional.jacobian(curved, point)
    system = formed.T @ formed + damping * torch.eye(4)
    step = damped_step(here, here.slope, damping, 1e-12, 50)
    torch.testing.assert_close(step, -torch.linalg.solve(system, here.slope))


def test_a_step_ends_at_the_stated_accuracy(point: Tensor):
    here = Linearisation(curved, point)

    def remainder(accuracy: float, most: int) -> float:
        step = damped_step(here, here.slope, 1e-6, accuracy, most)
        left = here.transposed(here.times(step)) + 1e-6 * step + here.slope
        return float(left.norm() / here.slope.norm())

    assert 1e-9 < remainder(0.5, 50) <= 0.5
    assert remainder(1e-9, 50) <= 1e-9 < remainder(1e-9, 1)
