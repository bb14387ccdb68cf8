from __future__ import annotations

import pytest
import torch
from scipy import fft
from torch import Tensor

from gleak.attacks.unmixing.noisy_mixtures import (
    Denoised,
    Expected,
    ImagePrior,
    OutputGradients,
    estimate_images,
    estimate_outputs,
    filling,
    observe_noise,
    regress,
    signal_powers,
    smooth,
)

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


OBLONG = (3, 6, 5)
OBLONG_PRIOR = ImagePrior.natural(OBLONG, torch.zeros(1).double())


def draw(count: int) -> torch.Tensor:
    """Draw images from the prior."""
    drawn = normal(count, 90, seed=0) * OBLONG_PRIOR.variances.sqrt()
    return OBLONG_PRIOR.mean + OBLONG_PRIOR.inverted(drawn)


def test_coefficients_are_those_of_scipy_and_invertible() -> None:
    images = draw(2)
    found = OBLONG_PRIOR.coefficients(images)
    oracle = fft.dctn(images.unflatten(1, OBLONG).numpy(), axes=(1, 2, 3), norm="ortho")
    torch.testing.assert_close(found, torch.from_numpy(oracle).flatten(1))
    torch.testing.assert_close(OBLONG_PRIOR.inverted(found), images)


def test_power_falls_with_frequency_and_difference_of_colours() -> None:
    grey, chroma, _ = OBLONG_PRIOR.variances.unflatten(0, OBLONG)
    assert (grey[1:, 0].diff() < 0).all()
    assert (grey[0, 1:].diff() < 0).all()
    assert (chroma < grey).all()


def test_the_posterior_is_that_of_the_dense_covariance() -> None:
    """The same by inverting the covariance of all values of all images."""
    shape, precision = (3, 3, 2), torch.tensor([[5.0, 2.0], [2.0, 3.0]]).double()
    prior = ImagePrior.natural(shape, torch.zeros(1).double())
    weighted = torch.randn(2, 18, generator=torch.manual_seed(1), dtype=torch.double)
    identity = torch.eye(18).double()
    basis = prior.coefficients(identity).T
    covariance = basis.T * prior.variances @ basis
    inverse = torch.linalg.inv(covariance).contiguous()
    total = torch.kron(precision, identity) + torch.kron(torch.eye(2).double(), inverse)
    pulled = weighted + inverse @ prior.mean
    posterior = torch.linalg.inv(total)
    found = prior.denoise(precision, weighted)
    torch.testing.assert_close(found.images.flatten(), posterior @ pulled.flatten())
    blocks = posterior.reshape(2, 18, 2, 18).diagonal(dim1=1, dim2=3).sum(2)
    torch.testing.assert_close(found.covariance, blocks)


def test_a_scaled_prior_denoises_scaled_images() -> None:
    gain, offset = torch.full((90,), 4.0).double(), torch.full((90,), -2.0).double()
    weighted, precision = 300 * draw(1), torch.full((1, 1), 300.0).double()
    plain = OBLONG_PRIOR.denoise(precision, weighted).images
    scaled = OBLONG_PRIOR.scaled(gain, offset).denoise(
        precision / 16, (weighted * gain + offset * precision) / 16
    )
    torch.testing.assert_close(scaled.images, gain * plain + offset)


def test_denoising_removes_most_of_the_noise() -> None:
    images = draw(40)
    noisy = images + 0.1 * torch.randn(images.shape, generator=torch.manual_seed(2)).double()
    found = OBLONG_PRIOR.denoise(100 * torch.eye(40).double(), 100 * noisy)
    error = (found.images - images).square().mean()
    assert error < (noisy - images).square().mean() / 2
    torch.testing.assert_close(found.covariance.diagonal().mean() / 90, error, rtol=0.15, atol=0.0)


def test_missing_values_are_those_of_the_conditional_mean() -> None:
    """By the dense precision of all values."""
    images, missing = draw(2), torch.arange(90) % 4 == 0
    basis = OBLONG_PRIOR.coefficients(torch.eye(90).double()).T
    precision = basis.T / OBLONG_PRIOR.variances @ basis
    means = images[:, ~missing].mean(1, keepdim=True)
    right = -precision[missing][:, ~missing] @ (images - means)[:, ~missing].T
    oracle = torch.linalg.solve(precision[missing][:, missing], right).T + means
    found = OBLONG_PRIOR.interpolated(images.where(~missing, 7.0), missing)
    torch.testing.assert_close(found[:, missing], oracle, rtol=1e-3, atol=1e-3)
    assert found[:, ~missing].equal(images[:, ~missing])


def test_a_bias_of_other_noise_has_gains_of_its_own() -> None:
    gains = torch.tensor([20.0, 30.0, 40.0]).double()
    bias = OUTPUTS @ gains + 0.1 * normal(NEURONS, seed=3)
    weight = CLEAN[:, :-1] + 0.01 * normal(NEURONS, 432, seed=2)
    mixture = observe_noise(weight, bias, SAMPLES)
    assert mixture.scaled_apart
    assert not observe_noise(weight, bias, SAMPLES, rounded=True).scaled_apart
    outputs = OutputGradients(OUTPUTS, torch.zeros(SAMPLES, SAMPLES).double(), 0.0)
    torch.testing.assert_close(mixture.with_gains(outputs).gains, gains, rtol=0.05, atol=0)


def test_sources_fill_the_range_between_their_bounds() -> None:
    sources = torch.tensor([[0.2, 0.5, -0.1], [-2.0, 1.0, 4.0]])
    low, high = torch.tensor([0.0, -1.0, -1.0]), torch.tensor([1.0, 1.0, 1.0])
    assert filling(sources, low, high).flatten().tolist() == [2.0, 0.25]
