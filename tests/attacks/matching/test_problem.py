"""Problems of a search: priors, mean gradients, and problems in the codes of samples."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from copy import deepcopy
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

from gleak.artifacts.protocol import Protocol
from gleak.attacks.matching.engine import match
from gleak.attacks.matching.gradient_matching import GradientMatching
from gleak.attacks.matching.priors import TotalVariation, total_variation
from gleak.attacks.matching.problem import CodedProblem, mean_gradients
from gleak.attacks.observation import Observation
from gleak.core.registry import parse
from tests.attacks.matching.slopes import assert_victims_are_kept

Make = Callable[..., Any]


@given(st.integers(1, 3), st.integers(1, 3), st.integers(2, 6), st.integers(2, 6))
def test_total_variation_is_the_mean_step_between_neighbours(
    victims: int, samples: int, height: int, width: int
):
    stream = torch.Generator().manual_seed(0)
    inputs = torch.randn(victims, samples, 3, height, width, generator=stream)
    for victim, found in zip(inputs, total_variation(inputs), strict=True):
        rows = victim.reshape(-1, height, width).tolist()
        columns = [list(zip(*plane, strict=True)) for plane in rows]
        down = [abs(q - p) for plane in columns for line in plane for p, q in pairwise(line)]
        across = [abs(q - p) for plane in rows for line in plane for p, q in pairwise(line)]
        expected = sum(down) / len(down) + sum(across) / len(across)
        assert found.item() == pytest.approx(expected, rel=1e-5)
    assert not TotalVariation(1.0)(inputs.flatten(2)).any(), "tables have none"


def test_a_gradient_is_taken_as_it_was_received(make_observation: Make):
    """Its first round, if there are several; the learning rate is none of its concern."""
    observation, _, _ = make_observation(protocol=Protocol(local_lr=0.5))
    rounds = {name: torch.cat([v, v + 1], 1) for name, v in observation.update.items()}
    found = mean_gradients(dataclasses.replace(observation, update=rounds))
    assert all(torch.equal(found[name], v[:, 0]) for name, v in observation.update.items())


def test_a_difference_says_the_mean_gradient_of_the_steps(make_observation: Make):
    """Each step's gradient is taken where the steps before have led."""
    observation, inputs, labels = make_observation("mlp+hidden=5", victims=1, samples=4)
    plain = deepcopy(observation.model).requires_grad_()
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.5)
    total = {name: torch.zeros_like(value) for name, value in plain.named_parameters()}
    for batch in ([0, 1], [2, 3], [0, 1]):
        optimizer.zero_grad()
        functional.cross_entropy(plain(inputs[0, batch]), labels[0, batch]).backward()
        for name, value in plain.named_parameters():
            total[name] += value.grad
        optimizer.step()
    update = {
        name: (plain.get_parameter(name).detach() - value)[None, None]
        for name, value in observation.model.named_parameters()
    }
    protocol = Protocol(content="difference", local_lr=0.5, local_steps=3)
    found = mean_gradients(dataclasses.replace(observation, update=update, protocol=protocol))
    for name, value in total.items():
        torch.testing.assert_close(found[name][0], value / 3, rtol=1e-4, atol=1e-6)


SMALL = 3 * 4 * 4


@pytest.fixture
def make(make_observation: Make, make_parts: Make) -> Make:
    """The same problem in codes and in pixels, in double precision."""

    def reparametrized(labels: str) -> tuple[CodedProblem, GradientMatching]:
        observation, _, _ = make_observation()
        observation.model.double()
        update = {name: value.double() for name, value in observation.update.items()}
        observation = Observation(**{**vars(observation), "update": update})
        whole = GradientMatching.of(observation, make_parts(labels=labels))
        return CodedProblem.of(whole, parse("code", "bicubic+scale=2").coder(observation)), whole

    return reparametrized


@pytest.mark.parametrize("labels", ["argmin", "joint"])
def test_derivatives_are_those_of_a_search_in_pixels_behind_the_decoder(labels: str, make: Make):
    coded, whole = make(labels)
    stream = torch.Generator().manual_seed(1)
    points = torch.rand(3, coded.unknowns, generator=stream).double().requires_grad_()
    found = coded.evaluate(points)
    decoded = torch.cat([coded.inputs(points).flatten(1), points[:, coded.values :]], 1)
    expected = whole.evaluate(decoded.detach())
    (along,) = torch.autograd.grad(decoded, points, expected.gradient)
    assert torch.equal(found.objective, expected.objective)
    torch.testing.assert_close(found.gradient, along)
    assert coded.values == whole.shape[0] * SMALL
    assert coded.unknowns - coded.values == whole.unknowns - whole.values
    assert_victims_are_kept(coded)


def test_reconstructions_are_decoded_codes(make_observation: Make, make_parts: Make):
    """Enlarged images have no detail: coding them again changes little."""
    observation, _, _ = make_observation()
    parts = make_parts(labels="argmin", code=parse("code", "bicubic+scale=2"), iterations=5)
    found = torch.from_numpy(match(observation, parts).inputs).flatten(0, 1)
    coder = parts.code.coder(observation)
    gap = (coder.decode(coder.encode(found)) - found).abs().mean()
    noise = torch.rand(found.shape, generator=torch.Generator().manual_seed(0))
    assert gap < 0.3 * (coder.decode(coder.encode(noise)) - noise).abs().mean()
