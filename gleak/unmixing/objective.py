"""The objective of the cocktail party attack: what makes rows of an unmixing matrix good."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from gleak.unmixing.edges import differences, variation_weights
from gleak.unmixing.mixtures import White

Term = Callable[[Tensor], Tensor]
"""From rows of length 1, Shape (V, n, n), to what is to be small; Shape (V)."""


@dataclass(frozen=True)
class Objective:
    """A sum of terms, to be minimised over unmixing matrices of V victims (CPA Eq. 10 and 11).

    The rows of a matrix count by their direction alone. Means are over rows, so that a weight means
    the same for every number of sources.

    Args:
        terms: for each victim's sources, with their weights.
    """

    terms: list[tuple[float, Term]]

    def evaluate(self, matrices: Tensor) -> tuple[Tensor, Tensor]:
        """Value and gradient.

        Args:
            matrices: Shape (V, n, n).

        Returns:
            Shape (V) and (V, n, n).
        """
        matrices = matrices.detach().requires_grad_()
        rows = functional.normalize(matrices, dim=2)
        nothing = 0 * rows.sum((1, 2))
        value = sum((weight * term(rows) for weight, term in self.terms), start=nothing)
        (gradient,) = torch.autograd.grad(value.sum(), matrices)
        return value.detach(), gradient


def negentropy(white: White) -> Term:
    """Minus J of Eq. 8 with a = 1, over the centred sources, whose variance is one.

    Eq. 8 leaves open what is squared; as in the reference it is the mean of log cosh, though the
    reference then sets the term to zero.
    """
    signals = white.signals

    def term(rows: Tensor) -> Tensor:
        magnitudes = (rows @ signals).abs()
        log_cosh = magnitudes + functional.softplus(-2 * magnitudes) - math.log(2)
        return -log_cosh.mean(2).square().mean(1)

    return term


def total_variation(white: White, shape: tuple[int, ...]) -> Term:
    """Eq. 3 of sources that are images of a shape (C, H, W)."""
    victims, count, _ = white.signals.shape
    steps = differences(white.signals.reshape(-1, *shape), orders=1)
    steps = (steps * variation_weights(shape).to(steps)).reshape(victims, count, -1)

    def term(rows: Tensor) -> Tensor:
        return (rows @ steps).abs().sum(2).mean(1)

    return term


def magnitude(white: White) -> Term:
    """Mean magnitude of the sources, for embeddings that are mostly zero (Eq. 11, L1)."""
    signals = white.uncentred
    return lambda rows: (rows @ signals).abs().mean((1, 2))


def mixed_signs(white: White) -> Term:
    """The smaller of a source's positive and negative parts, for embeddings of one sign (Eq. 11).

    Section IV-A writes the term without saying how values become a number; as in the reference it
    is the Euclidean length of each part.
    """
    signals = white.uncentred

    def term(rows: Tensor) -> Tensor:
        sources = rows @ signals
        return torch.minimum(sources.relu().norm(dim=2), (-sources).relu().norm(dim=2)).mean(1)

    return term


def dependence(temperature: float) -> Term:
    """Mean of exp(T |cosine|) - 1 over pairs of rows (Eq. 9; in the reference i = j counts too)."""

    def term(rows: Tensor) -> Tensor:
        count = rows.shape[1]
        cosines = (rows @ rows.mT).abs() * (1 - torch.eye(count).to(rows))
        return torch.expm1(temperature * cosines).sum((1, 2)) / max(1, count * (count - 1))

    return term
