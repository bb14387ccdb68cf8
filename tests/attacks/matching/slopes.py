"""Oracles of gradients and problems: plain differentiation, central differences, victims alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from gleak.artifacts.protocol import Protocol
from gleak.attacks.matching.choice import verified_method
from gleak.attacks.matching.gradients import ClientTraining, Gradients
from gleak.attacks.matching.problem import Problem
from gleak.models.differentiation import sample_losses

Formed = dict[str, Tensor]


def training_of(
    model: nn.Module,
    shape: tuple[int, ...],
    classes: int,
    loss: str = "cross_entropy",
    **fields: object,
) -> ClientTraining:
    """Return a training of one step of all parameters."""
    trained = frozenset(name for name, _ in model.named_parameters())
    training = ClientTraining(model, shape, classes, trained, Protocol(loss=loss))
    return replace(training, **fields)


def choose_gradients(training: ClientTraining) -> Gradients:
    """Return the method that is chosen, and check that the choice leaves no hooks behind."""
    gradients = verified_method(training)(training)
    assert not any(layer._forward_hooks for layer in training.model.modules())
    return gradients


def dummies(
    victims: int, samples: int, shape: tuple[int, ...], classes: int
) -> tuple[Tensor, Tensor]:
    """Draw samples and soft labels in double precision, which require a gradient."""
    stream: Any = {"generator": torch.Generator().manual_seed(samples), "dtype": torch.double}
    inputs = torch.rand(victims, samples, *shape, **stream)
    logits = torch.randn(victims, samples, classes, **stream)
    return inputs.requires_grad_(), logits.softmax(2).requires_grad_()


def plain_gradients(model: nn.Module, loss: str, inputs: Tensor, soft: Tensor) -> Formed:
    """Compute the gradients of each victim's mean loss, one victim after the other."""
    parameters = {name: value.detach().requires_grad_() for name, value in model.named_parameters()}
    rows = []
    for samples, labels in zip(inputs, soft, strict=True):
        logits = functional_call(model, parameters, (samples.clone(),))
        mean, values = sample_losses(loss, logits, labels).mean(), list(parameters.values())
        rows.append(torch.autograd.grad(mean, values, create_graph=True, materialize_grads=True))
    return dict(zip(parameters, map(torch.stack, zip(*rows, strict=True)), strict=True))


def points_of(problem: Problem) -> Tensor:
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
