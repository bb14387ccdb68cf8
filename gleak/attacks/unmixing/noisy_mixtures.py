"""Mixtures in noise: its variance, images seen through it, and both factors' posteriors.

A dense layer's gradient is G = A X plus noise of the same variance on every value, with the bias
as a feature that is 1 for every sample (`gleak.attacks.unmixing.mixtures.Mixture`). Given images
X, the rows of A follow by regression, from what the network would send for these images; given A,
the images follow from a prior. Each step uses the covariance of the other factor: otherwise noise
in one would shrink the other, turn by turn.
"""

from __future__ import annotations

from dataclasses import dataclass

from gleak.core.lazy import torch
from gleak.data.natural_images import Denoised, ImagePrior


@dataclass(frozen=True)
class NoisyMixture:
    """Gradients of one victim's dense layer, of N samples, and the variance of their noise.

    They are in double precision, that of the bias in the last column; Shape (neurons, F + 1).
    """

    gradients: torch.Tensor
    variance: torch.Tensor
    samples: int

    @property
    def weight(self) -> torch.Tensor:
        """Gradient of the weight; Shape (neurons, F)."""
        return self.gradients[:, :-1]

    @property
    def noise_share(self) -> float:
        """Length of the noise relative to that of the observed gradient of the weight."""
        return float((self.variance / self.weight.square().mean()).sqrt())


def observe_noise(weight: torch.Tensor, bias: torch.Tensor, samples: int) -> NoisyMixture:
    """Return one victim's mixture with the variance of its noise, at least that of rounding.

    N sources, fewer than neurons and values of a sample, explain N singular values; the others are
    those of the noise alone.
    """
    gradients = torch.cat([weight, bias[:, None]], 1).double()
    squares = torch.linalg.eigvalsh(gradients[:, :-1] @ gradients[:, :-1].T)
    neurons, values = weight.shape
    variance = squares[:-samples].clamp(min=0).sum() / ((neurons - samples) * (values - samples))
    rounding = torch.finfo(torch.float32).eps ** 2 * gradients.square().mean()
    return NoisyMixture(gradients, variance.clamp(min=rounding), samples)


def smooth(mixture: NoisyMixture, prior: ImagePrior) -> torch.Tensor:
    """Remove what noise hides from the weight's gradient, by the prior of the images in it.

    Every principal component is a mixture of images, so it has their spectrum, and the power that
    is left after subtracting the noise. Differences of neighbouring pixels amplify the noise of
    high frequencies, and would show nothing else without this. Shape (neurons, F), of rank N.
    """
    weight, noise = mixture.weight, mixture.variance
    directions = torch.linalg.eigh(weight @ weight.T).eigenvectors[:, -mixture.samples :]
    components = directions.T @ weight
    means = components.mean(1, keepdim=True)
    centred = components - means
    ratio = weight.shape[0] / weight.shape[1]
    powers = noise * signal_powers(centred.square().mean(1) / noise, ratio)
    spectrum = powers[:, None] * prior.variances / prior.variances.mean()
    kept = prior.coefficients(centred) * spectrum / (spectrum + noise)
    return directions @ (prior.inverted(kept) + means)


def signal_powers(observed: torch.Tensor, ratio: float) -> torch.Tensor:
    """Compute powers of components without noise, in units of its variance, from those with it.

    Noise raises a component's power l to (l + 1)(1 + ratio / l), with the ratio of the matrix's
    rows to columns (Baik and Silverstein 2006). Components below the largest of noise alone,
    (1 + sqrt(ratio))^2 (Marchenko and Pastur), cannot be told from it, and get the least power
    that could.
    """
    excess = observed - 1 - ratio
    root = (excess.square() - 4 * ratio).clamp(min=0).sqrt()
    return ((excess + root) / 2).clamp(min=ratio**0.5)


@dataclass(frozen=True)
class Expected:
    """Output gradients expected of images that are known up to an error; Shape (neurons, N)."""

    mean: torch.Tensor
    variance: torch.Tensor


@dataclass(frozen=True)
class OutputGradients:
    """Posterior of the derivatives A at the layer's outputs: mean, Shape (neurons, N), covariance.

    The covariance is summed over the neurons; Shape (N, N). The misfit is minus twice the logarithm
    of the probability of the gradients, given the images.
    """

    mean: torch.Tensor
    covariance: torch.Tensor
    misfit: float


def with_ones(images: torch.Tensor) -> torch.Tensor:
    """Append the bias's feature; Shape (N, F) to (N, F + 1)."""
    return torch.cat([images, torch.ones_like(images[:, :1])], 1)


def images_gram(denoised: Denoised) -> torch.Tensor:
    """Compute the expected products of images with each other; Shape (N, N)."""
    images = with_ones(denoised.images)
    return images @ images.T + denoised.covariance


def regress(mixture: NoisyMixture, denoised: Denoised) -> torch.Tensor:
    """Compute output gradients by least squares from the images alone; Shape (neurons, N)."""
    products = with_ones(denoised.images) @ mixture.gradients.T
    return torch.linalg.solve(images_gram(denoised), products).T


def estimate_outputs(
    mixture: NoisyMixture, denoised: Denoised, expected: Expected
) -> OutputGradients:
    """Compute the posterior of the output gradients, given the images.

    Those expected are the mean and variance of an independent normal prior.
    """
    images, gram, noise = with_ones(denoised.images), images_gram(denoised), mixture.variance
    correlated = mixture.gradients @ images.T
    unexplained = (correlated - expected.mean @ gram) / noise
    precision = torch.diag_embed(1 / expected.variance) + gram / noise
    covariance = torch.linalg.inv(precision)
    correction = (covariance @ unexplained[..., None])[..., 0]
    errors = mixture.gradients.square().sum() / noise
    errors -= ((correlated / noise + unexplained) * expected.mean).sum()
    volume = torch.linalg.slogdet(precision)[1].sum() + expected.variance.log().sum()
    misfit = errors - (unexplained * correction).sum() + volume
    return OutputGradients(expected.mean + correction, covariance.sum(0), float(misfit))


def estimate_images(mixture: NoisyMixture, outputs: OutputGradients, prior: ImagePrior) -> Denoised:
    """Compute the posterior of the images, given the output gradients."""
    precision = outputs.mean.T @ outputs.mean + outputs.covariance
    weighted = outputs.mean.T @ mixture.weight
    return prior.denoise(precision / mixture.variance, weighted / mixture.variance)
