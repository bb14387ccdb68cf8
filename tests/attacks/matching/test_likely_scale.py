"""Scales of samples that are right but for it, from gradients in noise and of any length."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from gleak.attacks.matching.likely_scale import likely_scale
from gleak.attacks.observation import Observation
from gleak.models.layers import HeldReLU
from tests.attacks.cases import holding, natural_images

SHAPE = (3, 8, 8)
Clipped = Callable[..., tuple[Observation, np.ndarray, np.ndarray]]


@pytest.fixture
def clipped(make_observation: Callable[..., Any]) -> Clipped:
    """A client whose gradient has length 1 and noise, and its sample."""

    def make(network: str) -> Any:
        seen, _, _ = make_observation(network, victims=1, samples=1)
        image, label = natural_images(1, SHAPE).numpy(), np.array([1])
        seen = replace(holding(seen, image[None], label[None]), granted={})
        length = sum(float(value.square().sum()) for value in seen.update.values()) ** 0.5
        draw = torch.Generator().manual_seed(0)
        update = {
            name: value / length + 5e-4 * torch.randn(value.shape, generator=draw)
            for name, value in seen.update.items()
        }
        return replace(seen, update=update), image, label

    return make


@pytest.mark.parametrize("factor", [0.85, 1.0, 1.2])
@pytest.mark.parametrize("network", ["fc2", "fc2+activation=tanh", "lenet+activation=tanh"])
def test_the_scale_of_a_noisy_sample_is_found(clipped: Clipped, network: str, factor: float):
    seen, image, label = clipped(network)
    noise = np.random.default_rng(1).normal(0, 0.01, image.shape)
    noisy = np.float32((image + noise) / factor)
    assert likely_scale(seen, noisy, label) == pytest.approx(factor, rel=0.05)


@pytest.mark.parametrize("factor", [0.8, 1.2])
@pytest.mark.parametrize("content", ["gradient", "difference"])
def test_parameters_too_short_to_be_clipped_tell_the_scale(
    make_observation: Callable[..., Any], factor: float, content: Any
):
    seen, _, _ = make_observation("fc2", victims=1, samples=1)
    image, label = natural_images(1, SHAPE).numpy(), np.array([1])
    seen = replace(holding(seen, image[None], label[None]), granted={})
    gradient = {name: value[0, 0] for name, value in seen.update.items()}
    bound = sum(sorted(float(value.norm()) for value in gradient.values())[-2:]) / 2
    protocol = replace(
        seen.protocol, content=content, local_lr=0.1, clipping="parameter", norm_if_clipped=bound
    )
    update = {
        name: protocol.update_scale * value * min(1, bound / float(value.norm()))
        for name, value in seen.update.items()
    }
    seen = replace(seen, update=update, protocol=protocol)
    assert likely_scale(seen, image / np.float32(factor), label) == pytest.approx(factor, rel=0.02)
    short = replace(protocol, norm_if_clipped=1e-9)
    assert likely_scale(replace(seen, protocol=short), image / np.float32(factor), label) == 1


def test_a_sample_that_is_wrong_in_more_than_its_scale_keeps_it(clipped: Clipped):
    seen, image, label = clipped("fc2")
    assert likely_scale(seen, image / 5, label) == 1
    assert likely_scale(seen, np.zeros_like(image), label) == pytest.approx(1, abs=0.01)


def test_the_network_is_not_changed(clipped: Clipped):
    seen, image, label = clipped("fc2")
    before = [value.requires_grad for value in seen.model.parameters()]
    likely_scale(seen, image, label)
    assert [value.requires_grad for value in seen.model.parameters()] == before
    assert not any(isinstance(layer, HeldReLU) for layer in seen.model.modules())


def test_held_activities_are_those_of_the_first_inputs():
    network = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.ReLU(), torch.nn.Tanh())
    inputs, plain = torch.randn(2, 3), torch.nn.Sequential(*network[:2])
    expected = plain(inputs)
    (held,) = HeldReLU.in_place(network)
    assert network[1] is held
    network(inputs)
    torch.testing.assert_close(held.outputs, expected)
    network(-inputs)
    torch.testing.assert_close(held.outputs, network[0](-inputs) * (expected > 0))
