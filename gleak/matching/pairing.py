"""Which images of two epochs are of the same sample (AGIC section IV-B, step 1)."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

POOL = 2


def distances(first: Tensor, second: Tensor, pooled: bool) -> Tensor:
    """Mean squared error of every image of one epoch with every one of the next.

    Args:
        first: Shape (N, C, H, W).
        second: Shape (M, C, H, W).
        pooled: compare means of 2 x 2 pixels, which have less noise.

    Returns:
        Shape (N, M).
    """
    if pooled:
        first, second = functional.avg_pool2d(first, POOL), functional.avg_pool2d(second, POOL)
    return torch.cdist(first.flatten(1), second.flatten(1)).square() / first[0].numel()


def share_a_label(first: Tensor, second: Tensor) -> Tensor:
    """Which updates of two epochs may hold the same sample by their labels.

    Args:
        first: Shape (N, B), labels behind the update that each image is of.
        second: Shape (M, B).

    Returns:
        Shape (N, M).
    """
    return (first[:, None, :, None] == second[None, :, None, :]).flatten(2).any(2)


def pair_greedily(costs: Tensor, allowed: Tensor) -> np.ndarray:
    """One-to-one pairs, the cheapest first; those that are not allowed after all that are.

    Args:
        costs: Shape (N, N).
        allowed: Shape (N, N).

    Returns:
        Shape (N), the partner of each row.
    """
    order = np.lexsort((costs.flatten().numpy(), ~allowed.flatten().numpy()))
    partner = np.full(len(costs), -1)
    taken = np.zeros(len(costs), dtype=bool)
    for row, column in zip(*np.unravel_index(order, costs.shape), strict=True):
        if partner[row] < 0 and not taken[column]:
            partner[row], taken[column] = column, True
    return partner
