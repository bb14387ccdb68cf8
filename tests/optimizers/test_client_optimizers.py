"""Optimisers of clients, beside those of torch, step by step."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from gleak.core.errors import SpecError
from gleak.core.registry import load, parse

CLASSES = {
    "sgd": torch.optim.SGD,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "adagrad": torch.optim.Adagrad,
    "rmsprop": torch.optim.RMSprop,
}
DRAWN = {
    "momentum": (0.0, 0.95),
    "dampening": (0.0, 0.9),
    "weight_decay": (0.0, 0.1),
    "beta1": (0.0, 0.99),
    "beta2": (0.0, 0.999),
    "eps": (1e-8, 1e-3),
    "alpha": (0.0, 0.99),
    "lr_decay": (0.0, 0.5),
    "initial_accumulator_value": (0.0, 1.0),
}
RATE, STEPS = 0.05, 6


def settings(name: str, seed: int) -> dict[str, float | bool]:
    """Random values of an optimiser's options, some of them at zero; Nesterov's where it may be."""
    numbers = torch.Generator().manual_seed(seed)
    drawn: dict[str, float | bool] = {}
    for key in load("client_optimizer")[name].model_fields:
        if key == "nesterov":
            continue
        low, high = DRAWN[key]
        at_low = torch.rand((), generator=numbers) < 0.3
        drawn[key] = low if at_low else low + (high - low) * float(torch.rand(1, generator=numbers))
    if name == "sgd" and drawn["momentum"] and not drawn["dampening"]:
        drawn["nesterov"] = True
    return drawn


def of_torch(
    name: str, values: list[Tensor], options: dict[str, float | bool]
) -> torch.optim.Optimizer:
    given = dict(options)
    if "beta1" in given:
        given["betas"] = (given.pop("beta1"), given.pop("beta2"))
    return CLASSES[name](values, lr=RATE, **given)


def test_every_optimiser_is_compared() -> None:
    assert {*load("client_optimizer")} == {*CLASSES}


@pytest.mark.parametrize("name", sorted(CLASSES))
@pytest.mark.parametrize("seed", range(8))
def test_steps_are_those_of_torch(name: str, seed: int) -> None:
    options = settings(name, seed)
    spec = load("client_optimizer")[name](**options)
    numbers = torch.Generator().manual_seed(100 + seed)
    value = torch.randn(7, generator=numbers, dtype=torch.float64)
    theirs = value.clone().requires_grad_()
    optimizer = of_torch(name, [theirs], options)
    moments = spec.initial(value)
    for step in range(STEPS):
        gradient = torch.randn(7, generator=numbers, dtype=torch.float64)
        gradient[step] = 0
        theirs.grad = gradient.clone()
        optimizer.step()
        direction, moments = spec.direction(value, gradient, moments, step)
        value = value - RATE * direction
    torch.testing.assert_close(value, theirs.detach(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_directions_have_two_finite_derivatives_at_a_gradient_of_zero(name: str) -> None:
    spec = parse("client_optimizer", name)
    gradient = torch.tensor([0.0, 1e-30, 1e-6, 1.0], requires_grad=True)
    value = torch.zeros(4)
    moments = spec.initial(value)
    for step in range(2):
        direction, moments = spec.direction(value, gradient, moments, step)
        value = value - RATE * direction
    (slope,) = torch.autograd.grad(value.square().sum() + value.sum(), gradient, create_graph=True)
    (second,) = torch.autograd.grad(slope.sum(), gradient, allow_unused=True)
    assert slope.isfinite().all()
    assert second is None or second.isfinite().all()


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_linear_optimisers_are_those_whose_directions_scale_with_gradients(name: str) -> None:
    spec = parse("client_optimizer", name)
    gradient, zeros = torch.tensor([0.5, -2.0]), torch.zeros(2)
    once, _ = spec.direction(zeros, gradient, spec.initial(zeros), 0)
    twice, _ = spec.direction(zeros, 2 * gradient, spec.initial(zeros), 0)
    assert torch.allclose(twice, 2 * once) == spec.linear


@pytest.mark.parametrize(
    "text", ["sgd+nesterov=true", "sgd+momentum=0.9+nesterov=true+dampening=0.5", "adam+beta1=1"]
)
def test_options_that_torch_refuses_are_refused(text: str) -> None:
    with pytest.raises(SpecError, match=r"nesterov needs momentum|beta1"):
        parse("client_optimizer", text)


@pytest.mark.parametrize("name", [name for name in CLASSES if name != "sgd"])
def test_the_first_direction_gives_the_gradient(name: str) -> None:
    for seed in range(4):
        options = {**settings(name, seed), "eps": 1e-2}
        given = "+".join(f"{key}={value}" for key, value in options.items())
        optimizer = parse("client_optimizer", f"{name}+{given}")
        parameter = torch.linspace(-1, 1, 40, dtype=torch.float64)
        gradient = torch.randn(40, dtype=torch.float64)
        direction, _ = optimizer.direction(parameter, gradient, optimizer.initial(parameter), 0)
        found = optimizer.first_gradient(parameter, direction)
        torch.testing.assert_close(found, gradient, rtol=1e-6, atol=1e-9)


def test_a_direction_that_no_gradient_has_is_of_an_infinite_one() -> None:
    direction, zero = torch.tensor([1.5, -1.5]), torch.zeros(2)
    for name in ("adam", "adagrad", "rmsprop+alpha=0"):
        found = parse("client_optimizer", name).first_gradient(zero, direction)
        assert found.tolist() == [torch.inf, -torch.inf]
