from __future__ import annotations

import dataclasses
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

from gleak.matching.problem import mean_gradients, total_variation

MakeObservation = Callable[..., Any]


@given(st.integers(1, 3), st.integers(1, 3), st.integers(2, 6), st.integers(2, 6))
def test_total_variation_is_the_mean_step_between_neighbours(
    victims: int, samples: int, height: int, width: int
) -> None:
    stream = torch.Generator().manual_seed(0)
    inputs = torch.randn(victims, samples, 3, height, width, generator=stream)
    for victim, found in zip(inputs, total_variation(inputs), strict=True):
        planes = victim.reshape(-1, height, width).tolist()
        down = [
            abs(p[i + 1][j] - p[i][j])
            for p in planes
            for i in range(height - 1)
            for j in range(width)
        ]
        across = [
            abs(p[i][j + 1] - p[i][j])
            for p in planes
            for i in range(height)
            for j in range(width - 1)
        ]
        expected = sum(down) / len(down) + sum(across) / len(across)
        assert found.item() == pytest.approx(expected, rel=1e-5)


def test_a_gradient_is_taken_as_it_was_received(make_observation: MakeObservation) -> None:
    """Its first round, if there are several; the learning rate is none of its concern."""
    observation, _, _ = make_observation(local_lr=0.5)
    rounds = {name: torch.cat([v, v + 1], 1) for name, v in observation.update.items()}
    found = mean_gradients(dataclasses.replace(observation, update=rounds))
    assert all(torch.equal(found[name], v[:, 0]) for name, v in observation.update.items())


def test_a_difference_says_the_mean_gradient_of_the_steps(
    make_observation: MakeObservation,
) -> None:
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
    found = mean_gradients(
        dataclasses.replace(
            observation, update=update, content="difference", local_lr=0.5, local_steps=3
        )
    )
    for name, value in total.items():
        torch.testing.assert_close(found[name][0], value / 3, rtol=1e-4, atol=1e-6)
