"""Pixels of several images from linear equations and the most probable one of two priors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

from gleak.attacks.matching.pieces import sent_gram
from gleak.core.lazy import torch
from gleak.data.natural_images import ImagePrior

LEAST_EIGENVALUE = 1e-6
"""Least size of an equation of one quantity, relative to the largest of all."""
RIDGE = 1e-8
"""Variance of the sums, relative to that of the priors."""
MOST_EQUATIONS = 6144
"""Largest number that are combined of the values that were sent."""
BLOCK = 1024
"""Number of rows of their covariance that are computed at once."""
NARROW = 0.01
"""Largest value of a pixel that is not computed but stays as it is."""
ROUNDS = 8
"""Most computations, each without the pixels that were out of range before."""
TINY = 1e-12


@dataclass(frozen=True)
class Equations:
    """Linear equations, sum_n share_n y_n = sum, for values y_n of one of K quantities.

    Args:
        shares: of the N samples; Shape (R, N).
        places: of which quantity the values are; Shape (R).
        sums: Shape (R).
    """

    shares: torch.Tensor
    places: torch.Tensor
    sums: torch.Tensor

    @classmethod
    def of(
        cls, factors: torch.Tensor, sent: torch.Tensor, mask: torch.Tensor, used: torch.Tensor
    ) -> Self:
        """Combine the equations of each quantity into orthogonal ones, at most N.

        The largest ones of all are kept.

        Args:
            factors: of the samples' values in M sums; Shape (N, M).
            sent: the sums of K quantities, zero where not sent; Shape (K, M).
            mask: which of them were sent; Shape (K, M).
            used: which samples' values are not zero; Shape (K, N).
        """
        nonzero = used.to(factors)
        products = sent_gram(factors[None], mask[None].to(factors))[0]
        sizes, vectors = torch.linalg.eigh(products * nonzero[:, :, None] * nonzero[:, None])
        telling = sizes > LEAST_EIGENVALUE * sizes.max()
        order = sizes[telling].argsort(descending=True, stable=True)[:MOST_EQUATIONS]
        places, numbers = torch.nonzero(telling)[order].T
        shares = vectors[places, :, numbers]
        sums = (shares * (sent @ factors.T * nonzero)[places]).sum(1)
        return cls(shares, places, sums / sizes[places, numbers])

    def followed_by(self, others: Equations, quantities: int) -> Equations:
        """Return these equations, for the first K quantities, and others for those that follow."""
        return Equations(
            torch.cat([self.shares, others.shares]),
            torch.cat([self.places, quantities + others.places]),
            torch.cat([self.sums, others.sums]),
        )

    def compact(self) -> tuple[torch.Tensor, Equations]:
        """Return the quantities that have equations, and these by their positions among them."""
        used, places = self.places.unique(return_inverse=True)
        return used, replace(self, places=places)

    def applied(self, values: torch.Tensor) -> torch.Tensor:
        """Compute the sums of values, Shape (K, N) to (R)."""
        return (self.shares * values[self.places]).sum(1)

    def transposed(self, weights: torch.Tensor, quantities: int) -> torch.Tensor:
        """Distribute weights of the equations to the values; Shape (R) to (K, N)."""
        zeros = self.shares.new_zeros(quantities, self.shares.shape[1])
        return zeros.index_add(0, self.places, self.shares * weights[:, None])

    def covariance(self, of_samples: Sequence[torch.Tensor]) -> torch.Tensor:
        """Compute the covariance of the sums, (R, R), from that of each sample's values, (K, K)."""
        total = self.sums.new_zeros(len(self.sums), len(self.sums))
        for rows in torch.arange(len(self.sums), device=self.sums.device).split(BLOCK):
            for own, shares in zip(of_samples, self.shares.T, strict=True):
                block = own[self.places[rows]][:, self.places]
                total[rows] += block * shares[rows, None] * shares
        return total


@dataclass(frozen=True)
class NormalPrior:
    """Normal distribution of an image, up to the scale of its covariance.

    Args:
        precision: Shape (F, F).
        level: mean of the pixels; None: that of the ones which are known.
    """

    precision: torch.Tensor
    level: float | None = None

    @classmethod
    def natural(cls, shape: tuple[int, ...], like: torch.Tensor) -> Self:
        """Return that of natural images (C, H, W) (`gleak.data.natural_images`)."""
        prior = ImagePrior.natural(shape, like)
        unit = torch.eye(len(prior.mean)).to(like)
        return cls(prior.inverted(prior.coefficients(unit) / prior.variances))

    @classmethod
    def dark(cls, shape: tuple[int, ...], like: torch.Tensor) -> Self:
        """Return that of independent pixels around black, as in drawings on a black ground."""
        return cls(torch.eye(torch.Size(shape).numel()).to(like), 0.0)


@dataclass(frozen=True)
class LinearProblem:
    """Equations for the products of images and features, plus offsets.

    Args:
        equations: for K quantities.
        features: Shape (K, F).
        offsets: Shape (K).
    """

    equations: Equations
    features: torch.Tensor
    offsets: torch.Tensor

    def solve(
        self, images: torch.Tensor, most: torch.Tensor, priors: Sequence[NormalPrior]
    ) -> torch.Tensor:
        """Compute the most probable pixels by the prior under which the sums are most probable.

        Pixels out of range are set to its end, and the others are computed again.

        Args:
            images: of which the other pixels are known; Shape (N, F).
            most: largest values of the unknown pixels, 0 for the others; Shape (N, F).
            priors: whose scale is profiled.
        """
        filled = images.clamp(0).minimum(most).where(most > 0, images)
        missing = most > NARROW
        if not missing.any() or not len(self.equations.sums):
            return filled
        found = [(prior, *self._most_probable(filled, missing, prior)) for prior in priors]
        prior, filled, _ = max(found, key=lambda one: one[2])
        for _ in range(ROUNDS):
            inside = filled.clamp(0).minimum(most).where(missing, filled)
            missing = missing & (inside == filled)
            if inside.equal(filled) or not missing.any():
                return inside
            filled, _ = self._most_probable(inside, missing, prior)
        return filled.clamp(0).minimum(most).where(missing, filled)

    def _most_probable(
        self, images: torch.Tensor, missing: torch.Tensor, prior: NormalPrior
    ) -> tuple[torch.Tensor, float]:
        """Compute the missing pixels, and the logarithm of the sums' probability up to a constant.

        Shapes (N, F).
        """
        equations, filled = self.equations, images.clone()
        parts: list[tuple[torch.Tensor, torch.Tensor]] = []
        for image, own in zip(filled, missing, strict=True):
            known, level = image[~own], prior.level
            mean = known.mean() if level is None else level
            factor = torch.linalg.cholesky(prior.precision[own][:, own])
            slope = prior.precision[own][:, ~own] @ (known - mean)
            image[own] = mean - torch.cholesky_solve(slope[:, None], factor)[:, 0]
            columns = self.features[:, own].T
            parts.append((factor, torch.linalg.solve_triangular(factor, columns, upper=False)))
        left = equations.sums - equations.applied((filled @ self.features.T + self.offsets).T)
        covariance = equations.covariance([columns.T @ columns for _, columns in parts])
        covariance.diagonal().add_(RIDGE * covariance.diagonal().mean() + TINY)
        root = torch.linalg.cholesky(covariance)
        weights = torch.cholesky_solve(left[:, None], root)[:, 0]
        sums = equations.transposed(weights, len(self.features))
        pairs = zip(filled, missing, parts, sums.T, strict=True)
        for image, own, (factor, columns), one in pairs:
            moved = torch.linalg.solve_triangular(factor.T, columns @ one[:, None], upper=True)
            image[own] += moved[:, 0]
        evidence = (
            -len(left) / 2 * (left @ weights).clamp_min(TINY).log() - root.diagonal().log().sum()
        )
        return filled, float(evidence)
