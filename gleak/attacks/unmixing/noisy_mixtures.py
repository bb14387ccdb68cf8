"""Mixtures in noise: its variance, images seen through it, and both factors' posteriors.

A dense layer's gradient is G = A X plus noise of the same variance on every value, with the bias
as a feature that is 1 for every sample (`gleak.attacks.unmixing.mixtures.Mixture`). Given images
X, the rows of A follow by regression, from what the network would send for these images; given A,
the images follow from a prior. Each step uses the covariance of the other factor: otherwise noise
in one would shrink the other, turn by turn.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from gleak.attacks.unmixing.mixtures import leading_directions
from gleak.core.lazy import torch
from gleak.data.natural_images import Denoised, ImagePrior

UNLIKELY = 4.0
"""Standard deviations by which two estimates of one variance hardly ever differ."""
EXACT = 4.0
"""Variance, relative to that of rounding, below which the weight has no noise."""
SPREAD = 0.1
"""Standard deviation of the logarithm of a photograph's largest value (training CIFAR-10)."""
TINY = 1e-30


@dataclass(frozen=True)
class NoisyMixture:
    """Gradients of one victim's dense layer, of N samples, and their noise; in double precision.

    Args:
        weight: Shape (neurons, F).
        bias: Shape (neurons).
        directions: leading left singular vectors of the weight; Shape (neurons, N).
        variance: of the weight's noise.
        bias_variance: of the bias's noise.
        gains: factor of each sample in the bias, relative to that in the weight; Shape (N).
        scaled_apart: True if the gains are unknown; otherwise they are 1.
    """

    weight: torch.Tensor
    bias: torch.Tensor
    directions: torch.Tensor
    variance: torch.Tensor
    bias_variance: torch.Tensor
    gains: torch.Tensor
    scaled_apart: bool

    @property
    def samples(self) -> int:
        """Number of samples, N."""
        return len(self.gains)

    @property
    def components(self) -> torch.Tensor:
        """Mixtures of the samples along the directions; Shape (N, F)."""
        return self.directions.T @ self.weight

    @property
    def noise_share(self) -> float:
        """Length of the noise relative to that of the observed gradient of the weight."""
        return float((self.variance / self.weight.square().mean()).sqrt())

    @property
    def bias_noise_share(self) -> float:
        """Length of the noise relative to that of the observed gradient of the bias."""
        return float((self.bias_variance / self.bias.square().mean()).sqrt())

    def as_one(self) -> Self:
        """Return the same gradients as a mixture of one sample, with the mean of the gains."""
        return replace(self, gains=self.gains.mean(0, keepdim=True))

    def with_gains(self, outputs: OutputGradients) -> Self:
        """Return the mixture with the gains that fit the bias, if they are unknown."""
        if not self.scaled_apart:
            return self
        gram = outputs.mean.T @ outputs.mean + outputs.covariance
        return replace(self, gains=torch.linalg.solve(gram, outputs.mean.T @ self.bias))


def observe_noise(
    weight: torch.Tensor,
    bias: torch.Tensor,
    samples: int,
    rounded: bool = False,
    scaled_apart: bool = False,
) -> NoisyMixture:
    """Return one victim's mixture with the variances of its noise, at least that of rounding.

    N sources, fewer than neurons and values of a sample, explain N singular values of the weight;
    the others are those of the noise alone. What is left of the bias outside of the same directions
    is noise, too. If its variance differs from that of the weight by more than chance, the client
    has treated each parameter by itself, as Fed-CDP does, and may have scaled each by itself,
    unless the noise is that of ``rounded`` values; with ``scaled_apart`` it is known to have.
    """
    weight, bias = weight.double(), bias.double()
    directions, values = leading_directions(weight, samples)
    spare = len(weight) - samples
    below = weight.square().sum() - values.square().sum()
    rounding = torch.finfo(torch.float32).eps ** 2 * weight.square().mean()
    variance = (below / (spare * (weight.shape[1] - samples))).clamp(min=rounding)
    outside = bias - directions @ (directions.T @ bias)
    own = (outside.square().sum() / spare).clamp(min=rounding)
    apart = (own / variance).clamp(min=TINY).log().abs() > UNLIKELY * (2 / spare) ** 0.5
    apart = bool(apart & (variance > EXACT * rounding))
    chosen, gains = own if apart else variance, torch.ones(samples).to(weight)
    return NoisyMixture(
        weight,
        bias,
        directions,
        variance,
        chosen,
        gains,
        scaled_apart=scaled_apart or (apart and not rounded),
    )


def smooth(mixture: NoisyMixture, prior: ImagePrior) -> torch.Tensor:
    """Remove what noise hides from the mixture's components, by the prior of the images in them.

    Every principal component is a mixture of images, so it has their spectrum, and the power that
    is left after subtracting the noise. Differences of neighbouring pixels amplify the noise of
    high frequencies, and would show nothing else without this. Shape (N, F).
    """
    components, noise = mixture.components, mixture.variance
    means = components.mean(1, keepdim=True)
    centred = components - means
    ratio = mixture.weight.shape[0] / mixture.weight.shape[1]
    powers = noise * signal_powers(centred.square().mean(1) / noise, ratio)
    spectrum = powers[:, None] * prior.variances / prior.variances.mean()
    kept = prior.coefficients(centred) * spectrum / (spectrum + noise)
    return prior.inverted(kept) + means


def filling(sources: torch.Tensor, low: torch.Tensor, high: torch.Tensor) -> torch.Tensor:
    """Compute the largest positive factors with which sources lie between two bounds; (N, 1).

    A bound of zero is not reached by scaling, and ignored; without others the factor is 1. Bounds
    have Shape (F).
    """
    limits = torch.where(sources > 0, high, low) / sources
    least = limits.where(limits > 0, torch.inf).amin(1, keepdim=True)
    return least.where(least.isfinite(), 1.0)


def scales(
    mixture: NoisyMixture,
    rows: torch.Tensor,
    sources: torch.Tensor,
    prior: ImagePrior,
    low: torch.Tensor,
    high: torch.Tensor,
) -> torch.Tensor:
    """Compute the factors that make images of sources; Shape (N, 1).

    The sign is the more probable one, given the bias and the prior. The bias tells the scale, too,
    up to its noise and if it has no gains of its own; so does the image with the largest contrast
    within the bounds, up to `SPREAD`: photographs have few values outside of it, and bright spots.

    Args:
        mixture: gives the bias and its noise.
        rows: that separate the mixture's components into the sources; Shape (N, N).
        sources: Shape (N, F).
        prior: of the images.
        low: least values of the images; Shape (F).
        high: largest values; Shape (F).
    """
    seen = (rows @ (mixture.directions.T @ mixture.bias))[:, None]
    errors = mixture.bias_variance * rows.square().sum(1, keepdim=True)
    positive, negative = filling(sources, low, high), filling(-sources, low, high)
    weighted = prior.inverted(prior.coefficients(prior.mean[None]) / prior.variances)[0]
    towards = (sources @ weighted)[:, None] * (positive + negative) / 2
    signs = torch.where(towards + seen * (1 / positive + 1 / negative) / 2 / errors < 0, -1.0, 1.0)
    filled = torch.where(signs > 0, positive, negative)
    if mixture.scaled_apart:
        return signs * filled
    doubt = errors / seen.square().clamp(min=TINY)
    told = seen.abs().clamp(min=TINY).log() * -(SPREAD**2) + filled.log() * doubt
    return signs * (told / (SPREAD**2 + doubt)).exp()


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


def images_gram(denoised: Denoised) -> torch.Tensor:
    """Compute the expected products of images with each other; Shape (N, N)."""
    return denoised.images @ denoised.images.T + denoised.covariance


def _measured(mixture: NoisyMixture, denoised: Denoised) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute precision, Shape (N, N), and weighted values, (neurons, N), of output gradients.

    They are those of the measurements of both parameters, each relative to its noise.
    """
    gains = mixture.gains / mixture.bias_variance
    gram = images_gram(denoised) / mixture.variance + mixture.gains[:, None] * gains
    correlated = mixture.weight @ denoised.images.T / mixture.variance
    return gram, correlated + mixture.bias[:, None] * gains


def regress(mixture: NoisyMixture, denoised: Denoised) -> torch.Tensor:
    """Compute output gradients by least squares from the images alone; Shape (neurons, N)."""
    gram, weighted = _measured(mixture, denoised)
    return torch.linalg.solve(gram, weighted.T).T


def estimate_outputs(
    mixture: NoisyMixture, denoised: Denoised, expected: Expected
) -> OutputGradients:
    """Compute the posterior of the output gradients, given the images.

    Those expected are the mean and variance of an independent normal prior.
    """
    gram, weighted = _measured(mixture, denoised)
    unexplained = weighted - expected.mean @ gram
    precision = torch.diag_embed(1 / expected.variance) + gram
    covariance = torch.linalg.inv(precision)
    correction = (covariance @ unexplained[..., None])[..., 0]
    errors = mixture.weight.square().sum() / mixture.variance
    errors += mixture.bias.square().sum() / mixture.bias_variance
    errors -= ((weighted + unexplained) * expected.mean).sum()
    volume = torch.linalg.slogdet(precision)[1].sum() + expected.variance.log().sum()
    misfit = errors - (unexplained * correction).sum() + volume
    return OutputGradients(expected.mean + correction, covariance.sum(0), float(misfit))


def estimate_images(mixture: NoisyMixture, outputs: OutputGradients, prior: ImagePrior) -> Denoised:
    """Compute the posterior of the images, given the output gradients."""
    precision = outputs.mean.T @ outputs.mean + outputs.covariance
    weighted = outputs.mean.T @ mixture.weight
    return prior.denoise(precision / mixture.variance, weighted / mixture.variance)
