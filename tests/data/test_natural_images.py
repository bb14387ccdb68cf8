from __future__ import annotations

import torch
from scipy import fft

from gleak.data.natural_images import ImagePrior

OBLONG = (3, 6, 5)
OBLONG_PRIOR = ImagePrior.natural(OBLONG, torch.zeros(1).double())


def draw(count: int) -> torch.Tensor:
    """Draw images from the prior."""
    drawn = torch.randn(count, 90, generator=torch.manual_seed(0), dtype=torch.double)
    drawn *= OBLONG_PRIOR.variances.sqrt()
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
