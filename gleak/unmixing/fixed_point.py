"""FastICA: independent components that are uncorrelated, by a fixed point."""

from __future__ import annotations

import torch
from torch import Tensor

from gleak.unmixing.contrast import Contrast

ITERATIONS = 300
TOLERANCE = 1e-4


def fixed_point(white: Tensor, contrast: Contrast) -> Tensor:
    """Orthogonal matrices whose sources are sparse, all components at once (symmetrically).

    Hyvärinen and Oja 2000, section 6: every row moves to E[g(u z) z] - E[g'(u z)] u, then the rows
    are made orthogonal. Begins at the identity; a victim stops when no row turns any more, or
    after `ITERATIONS`.

    Args:
        white: signals of unit covariance; Shape (V, n, C, D), grouped as `Contrast` has them.
        contrast: how sparse sources are measured.

    Returns:
        Shape (V, n, n).
    """
    victims, count = white.shape[:2]
    signals = white.flatten(2)
    matrices = torch.eye(count).to(signals).expand(victims, count, count)
    resting = torch.zeros(victims, 1, 1).bool().to(white.device)
    for _ in range(ITERATIONS):
        scores = contrast.scores((matrices @ signals).view_as(white))
        moved = scores.values.flatten(2) @ signals.mT / signals.shape[2]
        turned = _orthogonal(moved - scores.slopes[..., None] * matrices)
        angles = 1 - (turned * matrices).sum(2).abs().amin(1)
        matrices = torch.where(resting, matrices, turned)
        resting = resting | (angles < TOLERANCE)[:, None, None]
        if resting.all():
            break
    return matrices


def _orthogonal(matrices: Tensor) -> Tensor:
    """The nearest orthogonal matrices."""
    left, _, right = torch.linalg.svd(matrices)
    return left @ right
