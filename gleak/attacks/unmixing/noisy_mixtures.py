"""Mixtures in noise: its variance, images seen through it, and both factors' posteriors.

A dense layer's gradient is G = A X plus noise of the same variance on every value, with the bias
as a feature that is 1 for every sample (`gleak.attacks.unmixing.mixtures.Mixture`). Given images
X, the rows of A follow by regression, from what the network would send for these images; given A,
the images follow from a prior. Each step uses the covariance of the other factor: otherwise noise
in one would shrink the other, turn by turn.

The amplitudes of natural images fall as one over the frequency, at every resolution (Field 1987).
Under white noise such a prior tells the low frequencies, which the noise hardly changes, from the
high ones, which it hides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from gleak.core.lazy import torch

POWER = 0.15
"""Variance of a grey coefficient times its squared frequency, for intensities in [0, 1]."""
LOWEST = 0.005
"""Squared frequency below which the power is constant."""
STEEPER = 1.0
"""Squared frequency, in radians per pixel, above which the power falls as its square."""
CHROMATIC = 0.06
"""Power of the first difference between colours, relative to grey."""


@dataclass(frozen=True)
class Denoised:
    """Mean of the posterior of K images, Shape (K, F), and their covariance, Shape (K, K).

    The covariance of the images among each other is summed over the values.
    """

    images: torch.Tensor
    covariance: torch.Tensor


@dataclass(frozen=True)
class ImagePrior:
    """Independent normal coefficients of a discrete cosine transform over colours, rows, columns.

    The transform over three colours gives their mean, the difference of the first and the last, and
    that of the second and the others. The constants were fitted to training images of CIFAR-10.

    Args:
        mean: of every value; Shape (F).
        variances: of the coefficients; Shape (F).
        bases: orthonormal cosines for colours, rows and columns, one in each row; Shape (S, S).
    """

    mean: torch.Tensor
    variances: torch.Tensor
    bases: Sequence[torch.Tensor]

    @classmethod
    def natural(cls, shape: tuple[int, ...], like: torch.Tensor) -> Self:
        """Return the prior of images (C, H, W) with intensities in [0, 1], typed as ``like``."""
        colours, rows, columns = (torch.arange(size).to(like) for size in shape)
        squares = _frequencies(rows)[:, None] + _frequencies(columns)
        grey = POWER / (squares + LOWEST) / (1 + squares / STEEPER)
        shares = torch.where(colours == 0, 1.0, CHROMATIC / colours.clamp(min=1).square())
        variances = (shares[:, None, None].to(like) * grey).flatten()
        return cls(torch.full_like(variances, 0.5), variances, [_cosines(n, like) for n in shape])

    def scaled(self, gain: torch.Tensor, offset: torch.Tensor) -> Self:
        """Return the prior of gain x + offset, Shape (F); gains count by their mean square."""
        mean, variances = gain * self.mean + offset, gain.square().mean() * self.variances
        return type(self)(mean, variances, self.bases)

    def coefficients(self, images: torch.Tensor) -> torch.Tensor:
        """Transform images, without subtracting the mean; Shape (K, F)."""
        return _transformed(images, self.bases)

    def inverted(self, coefficients: torch.Tensor) -> torch.Tensor:
        """Transform coefficients to images, without adding the mean; Shape (K, F)."""
        return _transformed(coefficients, [basis.T for basis in self.bases])

    def whitened(self, images: torch.Tensor) -> torch.Tensor:
        """Transform images to standard normal coefficients; Shape (K, F)."""
        return self.coefficients(images - self.mean) / self.variances.sqrt()

    def coloured(self, codes: torch.Tensor) -> torch.Tensor:
        """Transform standard normal coefficients to images; Shape (K, F)."""
        return self.inverted(codes * self.variances.sqrt()) + self.mean

    def denoise(self, precision: torch.Tensor, weighted: torch.Tensor) -> Denoised:
        """Compute the posterior of K images, given linear measurements of each value.

        Measurements m = M x with noise of covariance C, the same M and C for every value, have the
        precision M^T C^-1 M, Shape (K, K), and the weighted values M^T C^-1 m, Shape (K, F).
        """
        precisions, directions = torch.linalg.eigh(precision)
        unexplained = weighted - precision.sum(1, keepdim=True) * self.mean
        rotated = self.coefficients(directions.T @ unexplained)
        posterior = 1 / (precisions.clamp(min=0)[:, None] + 1 / self.variances)
        images = self.inverted(directions @ (posterior * rotated))
        covariance = directions * posterior.sum(1) @ directions.T
        return Denoised(images + self.mean, covariance)


def _transformed(images: torch.Tensor, bases: Sequence[torch.Tensor]) -> torch.Tensor:
    """Multiply images by a matrix along each of their three dimensions."""
    values = images.unflatten(1, [basis.shape[1] for basis in bases])
    for basis in bases:
        values = torch.tensordot(values, basis, dims=([1], [1]))
    return values.flatten(1)


def _frequencies(numbers: torch.Tensor) -> torch.Tensor:
    """Compute squared frequencies of cosines by their number, as seen by a difference."""
    return 4 * torch.sin(torch.pi * numbers / (2 * len(numbers))).square()


def _cosines(size: int, like: torch.Tensor) -> torch.Tensor:
    from scipy import fft

    return torch.from_numpy(fft.dct(np.eye(size), axis=0, norm="ortho")).to(like)


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
