"""Independent components by maximum likelihood: sources may be correlated by chance."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gleak.unmixing.contrast import Contrast

ITERATIONS = 60
TOLERANCE = 1e-4
FLATTEST = 0.1
HALVINGS = 8
SUFFICIENT = 1e-4


@dataclass(frozen=True)
class Likeliest:
    """Where the search of each of V victims ended.

    Args:
        matrices: Shape (V, n, n).
        iterations: Shape (V).
        objective: minus the log-likelihood of a value, but for a constant; Shape (V).
    """

    matrices: Tensor
    iterations: Tensor
    objective: Tensor


def maximise_likelihood(white: Tensor, first: Tensor, contrast: Contrast) -> Likeliest:
    """Matrices U that minimise the sources' contrast minus log |det U|.

    Real sources of a few thousand values are a little correlated, so that the best matrix is not
    orthogonal as FastICA's is. Quasi-Newton steps U <- (1 - t S) U with the Hessian's 2 x 2 blocks
    for independent sources, made definite where they are flatter than `FLATTEST` (Ablin, Cardoso
    and Gramfort 2018), and t halved until the likelihood rises. A victim stops when it gains
    less than `TOLERANCE`, or after `ITERATIONS`.

    Args:
        white: signals; Shape (V, n, C, D), grouped as `Contrast` has them.
        first: Shape (V, n, n).
        contrast: how sparse sources are measured.
    """
    matrices, least = first, _loss(white, first, contrast)
    resting = torch.zeros_like(least).bool()
    iterations = torch.zeros_like(least).long()
    for _ in range(ITERATIONS):
        matrices = _with_unit_sources(white, matrices)
        steps, slopes = _steps(white, matrices, contrast)
        matrices, losses = _search(white, matrices, least, steps, slopes, resting, contrast)
        iterations += ~resting
        resting = resting | (least - losses < TOLERANCE)
        least = losses
        if resting.all():
            break
    return Likeliest(matrices, iterations, least)


def _sources(white: Tensor, matrices: Tensor) -> Tensor:
    return (matrices @ white.flatten(2)).view_as(white)


def _loss(white: Tensor, matrices: Tensor, contrast: Contrast) -> Tensor:
    """Minus the log-likelihood for each value, but for a constant; Shape (V)."""
    return contrast.measure(_sources(white, matrices)) - torch.linalg.slogdet(matrices)[1]


def _with_unit_sources(white: Tensor, matrices: Tensor) -> Tensor:
    return matrices / _sources(white, matrices).square().mean((2, 3))[..., None].sqrt()


def _steps(white: Tensor, matrices: Tensor, contrast: Contrast) -> tuple[Tensor, Tensor]:
    """The quasi-Newton steps S, and how fast the loss falls along them; Shape (V, n, n) and (V)."""
    sources = _sources(white, matrices)
    scores = contrast.scores(sources)
    gradient = scores.values.flatten(2) @ sources.flatten(2).mT / sources[0, 0].numel()
    gradient.diagonal(dim1=1, dim2=2).zero_()
    own = scores.slopes[..., None].expand_as(gradient)
    flattest = (own + own.mT - ((own - own.mT).square() + 4).sqrt()) / 2
    own = own + (FLATTEST - flattest).clamp(min=0)
    steps = (own.mT * gradient - gradient.mT) / (own * own.mT - 1)
    steps.diagonal(dim1=1, dim2=2).zero_()
    return steps, (gradient * steps).sum((1, 2))


def _search(
    white: Tensor,
    matrices: Tensor,
    least: Tensor,
    steps: Tensor,
    slopes: Tensor,
    resting: Tensor,
    contrast: Contrast,
) -> tuple[Tensor, Tensor]:
    """Matrices and losses after the longest step that pays; as before where none does."""
    moved, losses, length = matrices, least, 1.0
    waiting = ~resting
    for _ in range(HALVINGS):
        tried = matrices - length * steps @ matrices
        tried_losses = _loss(white, tried, contrast)
        pays = waiting & (tried_losses < least - SUFFICIENT * length * slopes)
        moved = torch.where(pays[:, None, None], tried, moved)
        losses = torch.where(pays, tried_losses, losses)
        waiting = waiting & ~pays
        if not waiting.any():
            break
        length /= 2
    return moved, losses
