"""What a dense layer's gradients are to someone who unmixes them: mixtures of its inputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

ROUNDING = 2 * torch.finfo(torch.float32).eps
"""Of gradients: their singular values relative to the largest, where nothing else is left."""


@dataclass(frozen=True)
class Mixture:
    """Gradients of one dense layer, of V victims.

    With the layer's inputs X (N x F) and the loss's derivatives A (neurons x N) at its outputs they
    are G = A X and b = A 1 (CPA Eq. 7): the bias is one more feature, which is 1 for every sample.
    Of several local steps the mean gradient is a mixture too, with the mean of the steps' A.

    Args:
        weight: G; Shape (V, neurons, F).
        bias: b; Shape (V, neurons).
    """

    weight: Tensor
    bias: Tensor

    def keep(self, victims: Tensor) -> Self:
        """The mixtures of these victims; Shape (W), indices."""
        return type(self)(self.weight[victims], self.bias[victims])


@dataclass(frozen=True)
class White:
    """Mixtures brought to uncorrelated signals of unit variance (CPA footnote 3).

    Args:
        signals: centred; Shape (V, n, F), in single precision.
        means: what centring took away; Shape (V, n, 1).
        transform: from neurons to signals, in double precision; Shape (V, n, neurons).
    """

    signals: Tensor
    means: Tensor
    transform: Tensor

    @property
    def uncentred(self) -> Tensor:
        """The signals with their means; Shape (V, n, F)."""
        return self.signals + self.means


def whiten(mixtures: Tensor, count: int) -> White:
    """Centre every row, keep the largest principal components, scale them to unit variance.

    A victim at a time, in double precision: gradients in single precision resolve singular values
    down to 1e-7 of the largest, and their squares, which the covariance has, need the double.

    Args:
        mixtures: Shape (V, rows, F).
        count: n, of components.
    """
    parts = [_whiten_one(rows.double(), count) for rows in mixtures]
    return White(
        torch.stack([part.signals for part in parts]),
        torch.stack([part.means for part in parts]),
        torch.stack([part.transform for part in parts]),
    )


def _whiten_one(rows: Tensor, count: int) -> White:
    transform = principal_components(rows, count)
    means = rows.mean(1, keepdim=True)
    return White((transform @ (rows - means)).float(), (transform @ means).float(), transform)


def principal_components(rows: Tensor, count: int) -> Tensor:
    """What makes the largest principal components, of unit variance, of one victim's mixtures.

    Args:
        rows: in double precision; Shape (rows, F).
        count: n, of components.

    Returns:
        Shape (n, rows).
    """
    centred = rows - rows.mean(1, keepdim=True)
    variances, directions = torch.linalg.eigh(centred @ centred.T / centred.shape[1])
    return (directions[:, -count:] / variances[-count:].sqrt()).T


def visible_sources(mixture: Mixture, most: int) -> list[int]:
    """How many sources of each victim stand above the rounding of single precision.

    Fewer than the samples where some have no gradient, or the layer too few neurons that differ.
    """
    return [min(most, _rank(_singular_values(rows))) for rows in mixture.weight]


def estimated_sources(mixture: Mixture) -> list[int]:
    """The number of sources by the spectrum, for an attacker who is not told the batch size.

    Singular values above the level that separates signal from noise of unknown size count, where
    at least half of the neurons' singular values are noise (Gavish and Donoho 2014, section IV-C,
    with their polynomial for the factor on the median); without noise, those above rounding. At
    least 1, but for a gradient that is zero.
    """
    found = []
    for rows in mixture.weight:
        values = _singular_values(rows)[: min(rows.shape)]
        ratio = min(rows.shape) / max(rows.shape)
        factor = 0.56 * ratio**3 - 0.95 * ratio**2 + 1.82 * ratio + 1.43
        above = int((values > factor * values.median()).sum())
        found.append(min(max(1, above), _rank(values)))
    return found


def _singular_values(rows: Tensor) -> Tensor:
    """Of the centred rows, the largest first."""
    centred = rows.double() - rows.double().mean(1, keepdim=True)
    return torch.linalg.eigvalsh(centred @ centred.T).clamp(min=0).sqrt().flip(0)


def _rank(values: Tensor) -> int:
    return int((values > ROUNDING * values[0]).sum())
