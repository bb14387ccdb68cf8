"""First-order optimizers compared with those of `torch.optim`, problem by problem."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, optim

from gleak.attacks.matching.engine import match
from gleak.attacks.matching.optimizers import Adam, OptimizerSpec
from gleak.core.registry import load, parse

Make = Callable[..., Any]

FIRST_ORDER = sorted(set(load("optimizer")) - {"lbfgs", "gauss_newton"})
STEPS = 60
Torch = Callable[[list[Tensor]], optim.Optimizer]
ADAMS = [
    f"adam+lr=0.3+signed={signed}+schedule={schedule}"
    for signed in ("false", "true")
    for schedule in ("constant", "steps", "cosine")
]
ORACLES: dict[str, Torch] = {
    **dict.fromkeys(ADAMS, optim.Adam),
    "sgd+lr=0.3": partial(optim.SGD, lr=0.3, momentum=0.9),
    "sgd+lr=0.3+momentum=0": partial(optim.SGD, lr=0.3),
    "adagrad+lr=0.3": partial(optim.Adagrad, lr=0.3),
    "adagrad+lr=0.3+eps=0.5": partial(optim.Adagrad, lr=0.3, eps=0.5),
}


@pytest.fixture
def gradients() -> Tensor:
    random = torch.Generator().manual_seed(0)
    return torch.randn(STEPS, 4, 7, generator=random, dtype=torch.double)


def rates(spec: OptimizerSpec) -> list[float]:
    """Return the learning rate of each step."""
    rate = getattr(spec, "rate", lambda progress: spec.lr)
    return [rate(number / STEPS) for number in range(STEPS)]


def torch_path(oracle: Torch, start: Tensor, gradients: Tensor, rates: list[float]) -> Tensor:
    point = start.clone().requires_grad_()
    optimizer = oracle([point])
    for gradient, rate in zip(gradients, rates, strict=True):
        optimizer.param_groups[0]["lr"] = rate
        point.grad = gradient.clone()
        optimizer.step()
    return point.detach()


def path_with_changes(spec: OptimizerSpec, starts: Tensor, gradients: Tensor) -> Tensor:
    """Restart problem 1 after 20 steps and remove problem 3 after 40."""
    points = starts
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
        search.prepare(lambda: None)
        points = search.step(points, gradients[number, left])
    return points


@pytest.mark.parametrize("text", ORACLES)
def test_every_problem_takes_torchs_path(text: str, gradients: Tensor):
    spec = parse("optimizer", text)
    starts = gradients[0] / 2
    points = path_with_changes(spec, starts, gradients)
    used = gradients.sign() if getattr(spec, "signed", False) else gradients
    for row in (0, 1, 2):
        begun = 20 if row == 1 else 0
        path = torch_path(ORACLES[text], starts[row], used[begun:, row], rates(spec)[begun:])
        torch.testing.assert_close(points[row], path)


@pytest.mark.parametrize("text", [*ORACLES, "lbfgs"])
def test_points_and_gradients_are_left_as_they_were(text: str, gradients: Tensor):
    points, gradient = gradients[0].clone(), gradients[1].clone()
    search = parse("optimizer", text).begin(points, STEPS)
    for slope in (gradient, gradients[2].clone()):
        search.prepare(lambda: None)
        search.step(points, slope)
    assert torch.equal(points, gradients[0])
    assert torch.equal(gradient, gradients[1])


@pytest.mark.parametrize("name", FIRST_ORDER)
@pytest.mark.parametrize("distance", ["l2", "cosine"])
@pytest.mark.parametrize("model", ["lenet+width=3", "mlp+hidden=20"])
def test_with_its_defaults_each_halves_the_objective(
    name: str, distance: str, model: str, make_observation: Make, make_parts: Make
):
    components = {"optimizer": parse("optimizer", name), "distance": parse("distance", distance)}
    found = match(make_observation(model)[0], make_parts(**components))
    assert (found.trace_objective[:, -1] < found.trace_objective[:, 0] / 2).all()


def test_rates_follow_their_schedules():
    shares = [0, 0.374, 0.375, 0.624, 0.625, 0.874, 0.875, 1]
    steps = [Adam(lr=2, schedule="steps").rate(share) for share in shares]
    assert steps == pytest.approx([2, 2, 0.2, 0.2, 0.02, 0.02, 0.002, 0.002])
    cosine = Adam(lr=2, schedule="cosine").rate
    assert [cosine(0), cosine(0.25), cosine(1)] == pytest.approx([2, 1 + math.sqrt(0.5), 0])
    assert {Adam(lr=2).rate(share) for share in shares} == {2}
