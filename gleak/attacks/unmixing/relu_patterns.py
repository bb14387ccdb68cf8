"""Columns that unmix a ReLU layer's gradient, from approximate samples.

An approximate sample tells at which neurons the sample is surely inactive: where the layer's output
for it is far below zero. The column of `gleak.attacks.unmixing.relu_sparsity` is the only
direction that is zero at all of them, so an approximate sample with the right signs there gives
the exact column. Known columns leave mixtures of the other samples alone, which are easier to
separate.
"""

from __future__ import annotations

from gleak.attacks.unmixing.mixtures import Mixture
from gleak.attacks.unmixing.relu_sparsity import Factors, gram, sharpen
from gleak.core.lazy import torch

SHARES = (1.0, 0.9, 0.8)
"""Shares of the inactive neurons that are taken for surely inactive, those with the lowest outputs.

Fewer are wrong among fewer, and more determine the direction better. Of 128 training images of
CIFAR-10 in two batches (untrained FC-2, samples of 29.5 dB) the shares 0.9, 0.8, 0.7 and 0.6 gave
109, 123, 88 and 1 exact columns.
"""
WIDTH = 1e-3
"""First width of sharpening. With 0.01 fewer, with 0.003 as many columns became exact."""


def remaining_mixture(factors: Factors, columns: torch.Tensor) -> Mixture:
    """Compute mixtures of the samples whose columns are not known.

    The rows of Q^-1 of these samples span the orthogonal complement of the known columns of Q.

    Args:
        factors: of one victim's gradients.
        columns: known ones, linearly independent; Shape (K, rank).

    Returns:
        Of rank - K neurons, in double precision.
    """
    complete = torch.linalg.qr(columns.T, mode="complete").Q
    mixed = complete[:, len(columns) :].T @ factors.rest
    return Mixture(mixed[None, :, :-1], mixed[None, :, -1])


def pattern_columns(
    factors: Factors, inputs: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor
) -> torch.Tensor:
    """Compute candidates for the columns of approximate samples, by each of `SHARES`.

    A direction is exact if no neuron was taken wrongly; otherwise sharpening may lead to the exact
    one, but it may also lead away from one that is exact already, so both are returned.

    Args:
        factors: of the victim's gradients.
        inputs: approximate samples; Shape (T, F).
        weight: of the layer; Shape (neurons, F).
        bias: Shape (neurons).

    Returns:
        Of length 1; Shape (T * shares * 2, rank).
    """
    outputs = (inputs @ weight.T + bias).where(factors.live(), torch.inf)
    nulls = torch.cat([_null_columns(factors, outputs, share) for share in SHARES])
    return torch.cat([nulls, sharpen(factors, nulls, WIDTH)])


def _null_columns(factors: Factors, outputs: torch.Tensor, share: float) -> torch.Tensor:
    """Compute the directions nearest to zero at the surely inactive neurons; Shape (T, rank).

    These are at least as many as determine a direction.
    """
    inactive = (outputs < 0).sum(1, keepdim=True)
    taken = (share * inactive).clamp(min=factors.rank - 1)
    lowest = outputs.argsort(1).argsort(1) < taken
    squares = gram(factors.unit_rows(), lowest.to(outputs))
    return torch.linalg.eigh(squares).eigenvectors.mT[:, :1].flatten(1)
