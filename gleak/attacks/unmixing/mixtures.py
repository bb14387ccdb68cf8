"""Gradients of a dense layer as mixtures of its inputs: whitening, separation and scale."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from gleak.core.lazy import torch
from gleak.runtime.seeding import torch_stream

ROUNDING = 2 * float(np.finfo(np.float32).eps)
"""Rounding error of the singular values of gradients, relative to the largest."""
TINY = 1e-30
OVERSAMPLED, PASSES, SETTLED = 8, 30, 1e-9
"""Spare directions of a subspace iteration, its most steps, and the change at which it ends."""


@dataclass(frozen=True)
class Mixture:
    """Gradients of one dense layer, of V victims.

    With the layer's inputs X (N x F) and the loss's derivatives A (neurons x N) at its outputs they
    are G = A X and b = A 1 (CPA Eq. 7): the bias is one more feature, which is 1 for every sample.
    The mean gradient of several local steps is a mixture too, with the mean of the steps' A.

    Args:
        weight: G; Shape (V, neurons, F).
        bias: b; Shape (V, neurons).
    """

    weight: torch.Tensor
    bias: torch.Tensor

    def keep(self, victims: torch.Tensor) -> Self:
        """Return the mixtures of these victims; Shape (W), indices."""
        return type(self)(self.weight[victims], self.bias[victims])


@dataclass(frozen=True)
class White:
    """Mixtures transformed to uncorrelated signals of unit variance (CPA footnote 3).

    Args:
        signals: centred; Shape (V, n, F), in single precision.
        means: subtracted by centring; Shape (V, n, 1).
        transform: from neurons to signals, in double precision; Shape (V, n, neurons).
    """

    signals: torch.Tensor
    means: torch.Tensor
    transform: torch.Tensor

    @property
    def uncentred(self) -> torch.Tensor:
        """Signals with their means; Shape (V, n, F)."""
        return self.signals + self.means


def whiten(mixtures: torch.Tensor, count: int) -> White:
    """Centre every row and scale the n largest principal components to unit variance.

    One victim at a time, in double precision: gradients in single precision resolve singular values
    down to 1e-7 of the largest, and their squares, in the covariance, need double precision.
    """
    signals, centres, transforms = [], [], []
    for rows in mixtures.double():
        transform = principal_components(rows, count)
        means = rows.mean(1, keepdim=True)
        signals.append((transform @ (rows - means)).float())
        centres.append((transform @ means).float())
        transforms.append(transform)
    return White(torch.stack(signals), torch.stack(centres), torch.stack(transforms))


def principal_components(rows: torch.Tensor, count: int) -> torch.Tensor:
    """Compute the transform of one victim's rows to the n largest principal components; (n, rows).

    The components have unit variance, and the rows, (rows, F), are in double precision.
    """
    directions, values = leading_directions(rows - rows.mean(1, keepdim=True), count)
    return (directions / values * rows.shape[1] ** 0.5).T


def leading_directions(matrix: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute the leading left singular vectors and singular values of a large matrix.

    By subspace iteration from random directions, always the same ones, until the singular values
    are settled (Halko, Martinsson and Tropp 2011, Algorithm 4.4).

    Args:
        matrix: in double precision; Shape (rows, F).
        count: n, at most the shorter side.

    Returns:
        Vectors, Shape (rows, n), and values in descending order, Shape (n).
    """
    width = count + OVERSAMPLED
    if min(matrix.shape) < 4 * width:
        left, values, _ = torch.linalg.svd(matrix, full_matrices=False)
        return left[:, :count], values[:count]
    drawn = torch.randn(
        matrix.shape[1], width, generator=torch_stream(0, "directions"), dtype=torch.float32
    )
    basis = torch.linalg.qr(matrix @ drawn.to(matrix)).Q
    values = matrix.new_zeros(count)
    for _ in range(PASSES):
        before = values
        left, values, right = torch.linalg.svd(basis.T @ matrix, full_matrices=False)
        values = values[:count]
        if (values - before).abs().amax() <= SETTLED * values.amax():
            break
        basis = torch.linalg.qr(matrix @ right.T).Q
    return basis @ left[:, :count], values


def visible_sources(mixture: Mixture, most: int) -> list[int]:
    """Count the sources of each victim above the rounding error of single precision.

    Fewer than the samples where some have no gradient, or too few neurons of the layer differ.
    """
    counts = []
    for rows in mixture.weight.double():
        centred = rows - rows.mean(1, keepdim=True)
        counts.append(_rank(leading_directions(centred, min(most, *rows.shape))[1]))
    return counts


def estimated_sources(mixture: Mixture) -> list[int]:
    """Estimate the number of sources from the spectrum, if the batch size is unknown.

    Counts singular values above the threshold that separates signal from noise of unknown size,
    if at least half of the neurons' singular values are noise (Gavish and Donoho 2014, section
    IV-C, with their polynomial for the factor on the median); without noise, those above rounding
    error. At least 1, except for a zero gradient.
    """
    counts = []
    for rows in mixture.weight:
        values = _singular_values(rows)[: min(rows.shape)]
        ratio = min(rows.shape) / max(rows.shape)
        factor = 0.56 * ratio**3 - 0.95 * ratio**2 + 1.82 * ratio + 1.43
        above = int((values > factor * values.median()).sum())
        counts.append(min(max(1, above), _rank(values)))
    return counts


def _singular_values(rows: torch.Tensor) -> torch.Tensor:
    """Compute the singular values of the centred rows, in descending order."""
    centred = rows.double() - rows.double().mean(1, keepdim=True)
    return torch.linalg.eigvalsh(centred @ centred.T).clamp(min=0).sqrt().flip(0)


def _rank(values: torch.Tensor) -> int:
    return int((values > ROUNDING * values[0]).sum())


@dataclass(frozen=True)
class Unmixing:
    """Rows that unmix gradients or signals of V victims, Shape (V, n, neurons) or (V, n, n).

    The number of iterations of their search and its objective have Shape (V).
    """

    rows: torch.Tensor
    iterations: torch.Tensor
    objective: torch.Tensor


@dataclass(frozen=True)
class Sources:
    """Unmixed sources of V victims, up to a factor for each source.

    Args:
        values: u G for each row u of the unmixing, not finite beyond a victim's number of sources;
            Shape (V, n, F).
        factors: u b, the factors of the sources if the unmixing is correct; Shape (V, n, 1).
        iterations, objective: Shape (V), zero for a victim without sources.
    """

    values: torch.Tensor
    factors: torch.Tensor
    iterations: torch.Tensor
    objective: torch.Tensor


def separate(
    mixture: Mixture,
    counts: Sequence[int],
    most: int,
    unmix: Callable[[Mixture, int], Unmixing],
) -> Sources:
    """Unmix every victim; victims with the same number of sources are unmixed together.

    Those without sources are skipped; n is the maximum of the counts, or more.
    """
    victims = len(mixture.weight)
    values = mixture.weight.new_full((victims, most, mixture.weight.shape[2]), torch.nan)
    factors, objective = values[..., :1].clone(), values.new_zeros(victims)
    iterations = torch.zeros(victims).long()
    for count in sorted(set(counts) - {0}):
        selected = torch.tensor([row for row, number in enumerate(counts) if number == count])
        kept = mixture.keep(selected)
        unmixing = unmix(kept, count)
        pairs = zip(unmixing.rows, kept.weight, strict=True)
        sources = torch.stack([rows @ weight.double() for rows, weight in pairs])
        values[selected, :count] = sources.to(values)
        factors[selected, :count] = (unmixing.rows @ kept.bias.double()[..., None]).to(factors)
        objective[selected] = unmixing.objective.to(objective)
        iterations[selected] = unmixing.iterations.cpu()
    return Sources(values, factors, iterations, objective)


def by_bias(sources: torch.Tensor, factors: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Divide sources by the factor of the bias, and compress them where they leave [0, 1].

    A row u of the unmixing gives its source up to a factor: u G = f x. The same row applied to the
    bias's gradient gives u b = f, for the bias is a feature that is 1 for every sample. An inexact
    unmixing gives a factor that is too small, and hence values outside [0, 1]; the image is
    compressed by as much as they exceed it.

    Returns:
        Images by the factor, and by its negative; Shape (V, n, F), in [0, 1].
    """
    scaled = sources / _away_from_zero(factors)
    return _compressed(scaled), _compressed(-scaled)


def by_range(sources: torch.Tensor, factors: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Stretch sources to fill [0, 1], as in CPA's reference; only the sign is that of the bias."""
    signed = sources / _away_from_zero(factors)
    low, high = signed.amin(2, keepdim=True), signed.amax(2, keepdim=True)
    filled = (signed - low) / (high - low).clamp(min=TINY)
    return filled, 1 - filled


def embeddings_by_sign(sources: torch.Tensor, factors: torch.Tensor) -> torch.Tensor:
    """Scale embeddings that follow a ReLU, so nonnegative: choose the sign with the larger sum.

    The bias's sign is less reliable here: it was wrong for more of the embeddings of a trained
    ``vgg_small`` (training images of CIFAR-10). Its magnitude gives the scale. Negative values are
    clipped to zero; Shape (V, n, E).
    """
    signs = sources.sum(2, keepdim=True).sign()
    return (sources * signs / _away_from_zero(factors).abs()).clamp(min=0)


def _away_from_zero(factors: torch.Tensor) -> torch.Tensor:
    return factors.where(factors.abs() > TINY, TINY)


def _compressed(images: torch.Tensor) -> torch.Tensor:
    low = images.amin(2, keepdim=True).clamp(max=0)
    high = images.amax(2, keepdim=True).clamp(min=1)
    return (images - low) / (high - low)
