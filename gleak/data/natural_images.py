"""Prior of natural images, whose spectrum falls as one over the frequency.

The amplitudes of natural images fall so at every resolution (Field 1987). Under white noise such a
prior tells the low frequencies, which the noise hardly changes, from the high ones, which it hides.
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
INTERPOLATIONS, INTERPOLATED = 300, 1e-8
"""Most steps of conjugate gradients, and the squared residual, relative to the first, that ends."""
TINY = 1e-30


@dataclass(frozen=True)
class Denoised:
    """Mean of the posterior of K images, Shape (K, F), and their covariance, Shape (K, K).

    The covariance of the images among each other is summed over the values. The divergence is
    twice the Kullback-Leibler divergence of the posterior from the prior, in nats.
    """

    images: torch.Tensor
    covariance: torch.Tensor
    divergence: float = 0.0


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

    def interpolated(self, images: torch.Tensor, missing: torch.Tensor) -> torch.Tensor:
        """Compute missing values from the others, by conjugate gradients; Shape (K, F).

        The images are mixtures of those of the prior, whose own mean does not matter: that of the
        values that are known is subtracted.

        Args:
            images: Shape (K, F).
            missing: which values are missing, in all of them; Shape (F).
        """
        means = images[:, ~missing].mean(1, keepdim=True)

        def precise(values: torch.Tensor) -> torch.Tensor:
            return self.inverted(self.coefficients(values) / self.variances).where(missing, 0)

        found = torch.zeros_like(images)
        left = -precise((images - means).where(~missing, 0))
        direction, size = left, left.square().sum(1, keepdim=True)
        first = size
        for _ in range(INTERPOLATIONS):
            along = precise(direction)
            step = size / (direction * along).sum(1, keepdim=True).clamp(min=TINY)
            found, left = found + step * direction, left - step * along
            before, size = size, left.square().sum(1, keepdim=True)
            if (size <= INTERPOLATED * first).all():
                break
            direction = left + size / before.clamp(min=TINY) * direction
        return torch.where(missing, found + means, images)

    def denoise(self, precision: torch.Tensor, weighted: torch.Tensor) -> Denoised:
        """Compute the posterior of K images, given linear measurements of each value.

        Measurements m = M x with noise of covariance C, the same M and C for every value, have the
        precision M^T C^-1 M, Shape (K, K), and the weighted values M^T C^-1 m, Shape (K, F).
        """
        precisions, directions = torch.linalg.eigh(precision)
        unexplained = weighted - precision.sum(1, keepdim=True) * self.mean
        rotated = self.coefficients(directions.T @ unexplained)
        posterior = 1 / (precisions.clamp(min=0)[:, None] + 1 / self.variances)
        found = posterior * rotated
        covariance = directions * posterior.sum(1) @ directions.T
        shares = posterior / self.variances
        divergence = (shares - shares.log() - 1 + found.square() / self.variances).sum()
        images = self.inverted(directions @ found)
        return Denoised(images + self.mean, covariance, float(divergence))


def _transformed(images: torch.Tensor, bases: Sequence[torch.Tensor]) -> torch.Tensor:
    """Multiply images by a matrix along each of their three dimensions, one by one.

    The rounding of products of all images at once would depend on their number.
    """
    colours, rows, columns = bases
    mixed = colours.expand(len(images), -1, -1) @ images.unflatten(1, (len(colours), -1))
    channels = mixed.flatten(0, 1).unflatten(1, (len(rows), -1))
    rows, columns = (basis.expand(len(channels), -1, -1) for basis in (rows, columns))
    return (rows @ channels @ columns.mT).reshape(images.shape)


def _frequencies(numbers: torch.Tensor) -> torch.Tensor:
    """Compute squared frequencies of cosines by their number, as seen by a difference."""
    return 4 * torch.sin(torch.pi * numbers / (2 * len(numbers))).square()


def _cosines(size: int, like: torch.Tensor) -> torch.Tensor:
    from scipy import fft

    return torch.from_numpy(fft.dct(np.eye(size), axis=0, norm="ortho")).to(like)
