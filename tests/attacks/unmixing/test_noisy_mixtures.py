from __future__ import annotations

import pytest
import torch
from torch import Tensor

from gleak.attacks.unmixing.noisy_mixtures import (
    Expected,
    estimate_images,
    estimate_outputs,
    observe_noise,
    regress,
    signal_powers,
    smooth,
)
from gleak.data.natural_images import Denoised, ImagePrior

SHAPE, SAMPLES, NEURONS = (3, 12, 12), 3, 40
PRIOR = ImagePrior.natural(SHAPE, torch.zeros(1).double())
NOISE = 0.1


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.manual_seed(seed), dtype=torch.double)


IMAGES = PRIOR.mean + PRIOR.inverted(normal(SAMPLES, 432, seed=0) * PRIOR.variances.sqrt())
OUTPUTS = 0.05 * normal(NEURONS, SAMPLES, seed=1)
WITH_ONES = torch.cat([IMAGES, torch.ones(SAMPLES, 1).double()], 1)
CLEAN = OUTPUTS @ WITH_ONES
GRADIENTS = CLEAN + NOISE * normal(*CLEAN.shape, seed=2)
MIXTURE = observe_noise(GRADIENTS[:, :-1], GRADIENTS[:, -1], SAMPLES)
KNOWN = Denoised(IMAGES, torch.zeros(SAMPLES, SAMPLES).double())


def test_the_noise_is_that_which_was_added() -> None:
    assert MIXTURE.variance.item() == pytest.approx(NOISE**2, rel=0.06)
    noise = GRADIENTS[:, :-1] - CLEAN[:, :-1]
    expected = float(noise.norm() / GRADIENTS[:, :-1].norm())
    assert MIXTURE.noise_share == pytest.approx(expected, rel=0.05)
    exact = CLEAN.float()
    assert observe_noise(exact[:, :-1], exact[:, -1], SAMPLES).noise_share < 1e-6


def test_powers_of_components_are_those_without_noise() -> None:
    ratio, true = 0.1, torch.tensor([0.5, 1.0, 30.0]).double()
    torch.testing.assert_close(signal_powers((true + 1) * (1 + ratio / true), ratio), true)
    assert signal_powers(torch.tensor([1.0]), ratio) == torch.tensor(ratio**0.5)


def test_smoothing_brings_the_weight_nearer_to_the_one_without_noise() -> None:
    found = smooth(MIXTURE, PRIOR)
    left, _, _ = torch.linalg.svd(GRADIENTS[:, :-1])
    plain = left[:, :SAMPLES].T @ GRADIENTS[:, :-1]
    errors = [
        (directions @ components - CLEAN[:, :-1]).square().sum()
        for directions, components in ((MIXTURE.directions, found), (left[:, :SAMPLES], plain))
    ]
    assert errors[0] < errors[1] / 2


def test_without_a_prior_output_gradients_are_those_of_least_squares() -> None:
    unknown = Expected(torch.zeros_like(OUTPUTS), torch.full_like(OUTPUTS, 1e6))
    found = estimate_outputs(MIXTURE, KNOWN, unknown).mean
    oracle = torch.linalg.lstsq(WITH_ONES.T, GRADIENTS.T).solution.T
    torch.testing.assert_close(found, oracle, rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(regress(MIXTURE, KNOWN), oracle, rtol=1e-6, atol=1e-8)


def test_the_misfit_is_the_probability_of_the_gradients() -> None:
    """By the dense covariance of each neuron's gradient, up to a constant."""
    near = Expected(OUTPUTS + 0.01, torch.full_like(OUTPUTS, 1e-4))
    far = Expected(OUTPUTS + 0.03, torch.full_like(OUTPUTS, 2e-4))

    def oracle(expected: Expected) -> Tensor:
        images = WITH_ONES
        covariance = images.T * expected.variance[0] @ images
        covariance += MIXTURE.variance * torch.eye(len(covariance))
        means = expected.mean @ images
        outputs = torch.distributions.MultivariateNormal(torch.zeros(433).double(), covariance)
        return -2 * outputs.log_prob(GRADIENTS - means).sum()

    found = [estimate_outputs(MIXTURE, KNOWN, expected).misfit for expected in (near, far)]
    difference = (oracle(far) - oracle(near)).item()
    assert found[1] - found[0] == pytest.approx(difference, rel=1e-6)


def test_uncertain_images_leave_output_gradients_as_expected() -> None:
    unsure = Denoised(IMAGES, 1e9 * torch.eye(SAMPLES).double())
    expected = Expected(OUTPUTS, torch.full_like(OUTPUTS, 1e-2))
    found = estimate_outputs(MIXTURE, unsure, expected)
    assert found.mean.abs().max() < 1e-3 * OUTPUTS.abs().max()
    known = estimate_outputs(MIXTURE, KNOWN, expected)
    assert known.covariance.diagonal().sum() < NEURONS * SAMPLES * 1e-2


def test_images_follow_from_known_output_gradients() -> None:
    exact = estimate_outputs(MIXTURE, KNOWN, Expected(OUTPUTS, torch.full_like(OUTPUTS, 1e-9)))
    found = estimate_images(MIXTURE, exact, PRIOR)
    plain = torch.linalg.lstsq(OUTPUTS, GRADIENTS[:, :-1]).solution
    errors = [(images - IMAGES).square().mean() for images in (found.images, plain)]
    assert errors[0] < errors[1] / 2
    noiseless = observe_noise(CLEAN[:, :-1], CLEAN[:, -1], SAMPLES)
    recovered = estimate_images(noiseless, exact, PRIOR).images
    torch.testing.assert_close(recovered, IMAGES, rtol=1e-3, atol=1e-3)
