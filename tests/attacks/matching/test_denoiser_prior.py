from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from gleak.attacks.matching.denoiser_prior import DenoiserPrior
from gleak.data.natural_images import ImagePrior
from gleak.knowledge.networks import GradientStepDenoiser


def prior_of(channels: int, *, trained: bool = True) -> DenoiserPrior:
    network = GradientStepDenoiser(channels, 4).double().eval().requires_grad_(False)
    if trained:
        torch.nn.init.normal_(network.last.weight, 0, 0.1)
    observation: Any = SimpleNamespace(knowledge={"denoiser": network})
    return DenoiserPrior(1.0, deviation=0.1).of(observation)


def value_and_gradient(prior: DenoiserPrior, inputs: Tensor) -> tuple[Tensor, Tensor]:
    inputs = inputs.clone().requires_grad_()
    values = prior(inputs)
    (gradient,) = torch.autograd.grad(values.sum(), inputs)
    return values.detach(), gradient


@pytest.mark.parametrize("shape", [(3, 8, 8), (1, 8, 8), (3, 32, 32), (1, 32, 32)])
def test_victims_do_not_influence_each_other(shape: tuple[int, ...]) -> None:
    prior, inputs = prior_of(shape[0]), torch.rand(3, 2, *shape, dtype=torch.double)
    together = value_and_gradient(prior, inputs)
    assert together[0].shape == (3,)
    rows = torch.tensor([2, 0])
    kept = value_and_gradient(prior.keep(rows), inputs[rows])
    for victim in range(3):
        alone = value_and_gradient(prior, inputs[victim : victim + 1])
        torch.testing.assert_close(alone[0][0], together[0][victim])
        torch.testing.assert_close(alone[1][0], together[1][victim])
    torch.testing.assert_close(kept[1], together[1][rows])


def test_with_the_natural_prior_its_gradient_is_that_of_a_denoiser() -> None:
    """The step over the variance, if images with the same noise have the natural spectrum."""
    prior, inputs = prior_of(3), torch.rand(2, 2, 3, 8, 8, dtype=torch.double)
    assert prior.network is not None
    images = inputs.flatten(0, 1)
    natural = ImagePrior.natural((3, 8, 8), inputs)
    coefficients = natural.coefficients(images.flatten(1) - natural.mean)
    smoothed = natural.inverted(coefficients / (natural.variances + 0.01)).view_as(inputs)
    step = (images - prior.network.denoise(images, images.new_full((4,), 0.1))).view_as(inputs)
    _, gradient = value_and_gradient(prior, inputs)
    torch.testing.assert_close(gradient + smoothed, step / 0.01)


def test_before_training_it_says_nothing() -> None:
    prior, inputs = prior_of(3, trained=False), torch.rand(2, 3, 3, 8, 8, dtype=torch.double)
    values, gradient = value_and_gradient(prior, inputs)
    torch.testing.assert_close(values, torch.zeros(2).double(), rtol=0, atol=1e-9)
    assert gradient.abs().max() < 1e-9
