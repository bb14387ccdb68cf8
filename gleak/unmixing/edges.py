"""Differences between neighbouring pixels: signals far from Gaussian, and those of total variation.

Images of a batch resemble each other in their broad layout (bright above, dark below), and so do
not look independent; their edges lie in different places. Differences are linear, so a mixture of
images has the same mixture of differences.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gleak.unmixing.mixtures import principal_components

ROWS, COLUMNS = 2, 3
FAINT = 0.01
"""Weight of the mean colours beside the differences."""


def differences(images: Tensor, orders: int = 2) -> Tensor:
    """Differences along rows and columns, of the first order and, if asked for, the second.

    Args:
        images: Shape (K, C, H, W).
        orders: 1 or 2; a side too short for an order has no such differences.

    Returns:
        Shape (K, C, D): at each place the channels' differences stand below each other.
    """
    found = []
    for axis in (ROWS, COLUMNS):
        differing = images
        for _ in range(orders):
            differing = differing.diff(dim=axis)
            found.append(differing.flatten(2))
    return torch.cat(found, 2)


def white_differences(
    mixtures: Tensor, count: int, shape: tuple[int, ...]
) -> tuple[Tensor, Tensor]:
    """Differences of mixed images, brought to unit covariance.

    The images' mean colours count as one place more, faintly: of a picture of one colour, which has
    no differences, they are all there is.

    Args:
        mixtures: Shape (V, rows, F).
        count: n, of sources.
        shape: of an image, (C, H, W).

    Returns:
        The signals, Shape (V, n, C, D), and what makes them of the mixtures' rows, in double
        precision, Shape (V, n, rows).
    """
    parts = [_white_differences(rows, count, shape) for rows in mixtures]
    return torch.stack([signals for signals, _ in parts]), torch.stack([made for _, made in parts])


def _white_differences(rows: Tensor, count: int, shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Of one victim: its images' principal components first, as few as there are sources."""
    components = principal_components(rows.double(), count)
    images = (components @ rows.double()).unflatten(1, shape)
    steps = torch.cat([differences(images), FAINT * images.mean((2, 3))[..., None]], 2)
    flat = steps.flatten(1)
    variances, directions = torch.linalg.eigh(flat @ flat.T / flat.shape[1])
    whitening = (directions / variances.sqrt()).T
    return (whitening @ flat).view_as(steps).float(), whitening @ components


def variation_weights(shape: tuple[int, ...]) -> Tensor:
    """What turns the first differences' magnitudes into the total variation of Eq. 3.

    Args:
        shape: (C, H, W).

    Returns:
        Shape (D): one over the number of differences along the same axis, as Eq. 3 has a mean for
        each axis.
    """
    channels, height, width = shape
    counts = [channels * (height - 1) * width, channels * height * (width - 1)]
    return torch.cat([torch.full((count // channels,), 1 / count) for count in counts if count])
