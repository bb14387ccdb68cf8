"""Matching with the random numbers of a variational layer among the unknowns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from gleak.attacks.matching.drawn_matching import DrawnMatching
from gleak.attacks.matching.engine import match
from gleak.attacks.matching.gradient_matching import GradientMatching
from gleak.core.registry import parse
from gleak.models.layers import GaussianSample
from gleak.models.stochastic import noise_sizes, sampling, with_noise_as_input
from tests.attacks.matching.slopes import assert_gradient_of_objective

MODEL = "lenet+width=3+precode=5"
SHAPE = (3, 8, 8)


def observed_with(noise: Tensor, make_observation: Callable[..., Any]) -> tuple[Any, Tensor]:
    """Return an observation of clients that drew this noise, Shape (V, N, K)."""
    observation, inputs, labels = make_observation(MODEL)
    network = with_noise_as_input(observation.model, SHAPE)
    update: dict[str, list[Tensor]] = {name: [] for name in observation.update}
    parameters = dict(network.named_parameters())
    for value in parameters.values():
        value.requires_grad_()
    for samples, drawn, label in zip(inputs, noise, labels, strict=True):
        (layer,) = sampling(network)
        penalties: list[Tensor] = []
        hook = layer.register_forward_hook(
            lambda module, given, _, kept=penalties: kept.append(module.penalty(given[0]))
        )
        logits = network(torch.cat([samples.flatten(1), drawn], 1))
        hook.remove()
        loss = torch.nn.functional.cross_entropy(logits, label) + penalties[0].mean()
        slopes = torch.autograd.grad(loss, [parameters[name] for name in update])
        for name, slope in zip(update, slopes, strict=True):
            update[name].append(slope[None])
    for value in parameters.values():
        value.requires_grad_(False)
    observation.update.update({name: torch.stack(rows) for name, rows in update.items()})
    return observation, inputs


@pytest.fixture
def noise() -> Tensor:
    return torch.randn(3, 2, 5, generator=torch.Generator().manual_seed(8))


def test_noise_as_input_is_what_the_layer_adds() -> None:
    network = parse("model", MODEL).build(SHAPE, 4).eval()
    samples = torch.rand(4, *SHAPE, generator=torch.Generator().manual_seed(0))
    assert noise_sizes(network, SHAPE) == [5]
    extended = with_noise_as_input(network, SHAPE)
    silent = extended(torch.cat([samples.flatten(1), torch.zeros(4, 5)], 1))
    torch.testing.assert_close(silent, network(samples))
    (layer,) = sampling(network)
    kept: dict[str, Tensor] = {}
    layer.register_forward_hook(lambda _, given, out: kept.update(given=given[0], out=out))
    network(samples)
    deviations = torch.nn.functional.softplus(kept["given"][:, 5:])
    drawn = torch.randn(4, 5, generator=torch.Generator().manual_seed(1))
    decoder = [one for one in extended.modules() if isinstance(one, GaussianSample)]
    seen: list[Tensor] = []
    decoder[0].register_forward_hook(lambda _, given, out: seen.append(out))
    extended(torch.cat([samples.flatten(1), drawn], 1))
    torch.testing.assert_close(seen[0], kept["out"] + deviations * drawn)


def test_the_truth_has_distance_zero_only_with_its_noise(
    noise: Tensor, make_observation: Callable[..., Any], make_parts: Callable[..., Any]
) -> None:
    observation, inputs = observed_with(noise, make_observation)
    problem = DrawnMatching.of(observation, make_parts())
    truth = torch.cat([inputs.flatten(1), noise.flatten(1)], 1)
    assert truth.shape[1] == problem.unknowns
    silent = torch.cat([inputs.flatten(1), torch.zeros_like(noise).flatten(1)], 1)
    assert (problem.evaluate(truth).distance < 1e-9).all()
    assert (problem.evaluate(silent).distance > 1e-5).all()
    mean = GradientMatching.of(observation, make_parts()).evaluate(inputs.flatten(1))
    torch.testing.assert_close(problem.evaluate(silent).distance, mean.distance)


@pytest.mark.parametrize("labels", ["known", "joint"])
def test_the_gradient_is_that_of_the_objective(
    labels: str,
    noise: Tensor,
    make_observation: Callable[..., Any],
    make_parts: Callable[..., Any],
) -> None:
    observation, _ = observed_with(noise, make_observation)
    problem = DrawnMatching.of(observation, make_parts(labels=labels, label_term=0.1))
    assert_gradient_of_objective(problem, 3, 2e-2)


def test_the_search_comes_closer_than_with_the_mean(
    noise: Tensor, make_observation: Callable[..., Any], make_parts: Callable[..., Any]
) -> None:
    observation, _ = observed_with(noise, make_observation)
    found = {
        draws: match(observation, make_parts(draws=draws, iterations=30)).objective
        for draws in ("mean", "searched")
    }
    assert (found["searched"] < found["mean"]).all()
    assert found["searched"].max() < 0.5 * found["mean"].min()
