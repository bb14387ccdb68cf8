"""Differences between neighbouring pixels, and images that have none.

Images of a batch resemble each other in their broad layout (bright above, dark below), and so
do not look independent; their edges lie in different places. Differences are linear, so a
mixture of images has the same mixture of differences.

The differences of an image of one colour are all zero, so that unmixing by differences does not
detect it, and adds arbitrary shares of it to the other images. It is found in the space of the
gradients, in the direction in which differences vanish.
"""

from __future__ import annotations

from dataclasses import dataclass

from gleak.attacks.unmixing.mixtures import ROUNDING, Mixture, principal_components
from gleak.core.lazy import torch

ROWS, COLUMNS = 2, 3
FAINT = 0.01
"""Weight of the mean colours relative to the differences."""
LARGEST_RESIDUAL = 1e-2
"""Largest relative distance of an image's derivatives from the space of the mixture's."""


def differences(images: torch.Tensor, orders: int = 2) -> torch.Tensor:
    """Compute differences along rows and columns, of the first order and optionally the second.

    Args:
        images: Shape (K, C, H, W).
        orders: 1 or 2; a side too short for an order has no such differences.

    Returns:
        Shape (K, C, D): differences of all channels at the same position are in one column.
    """
    steps = []
    for axis in (ROWS, COLUMNS):
        differing = images
        for _ in range(orders):
            differing = differing.diff(dim=axis)
            steps.append(differing.flatten(2))
    return torch.cat(steps, 2)


def white_differences(
    mixtures: torch.Tensor, count: int, shape: tuple[int, ...]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute differences of mixed images, transformed to unit covariance.

    The images' mean colours count as one more position, with a small weight: for an image of one
    colour, which has no differences, they are the only signal.

    Args:
        mixtures: Shape (V, rows, F).
        count: n, of sources.
        shape: of an image, (C, H, W).

    Returns:
        The signals, Shape (V, n, C, D), and the transform from the mixtures' rows, in double
        precision, Shape (V, n, rows).
    """
    parts = [_white_differences(rows, count, shape) for rows in mixtures]
    return torch.stack([signals for signals, _ in parts]), torch.stack([made for _, made in parts])


def _white_differences(
    rows: torch.Tensor, count: int, shape: tuple[int, ...]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute the same for one victim, from its images' largest principal components."""
    components = principal_components(rows.double(), count)
    images = (components @ rows.double()).unflatten(1, shape)
    steps = torch.cat([differences(images), FAINT * images.mean((2, 3))[..., None]], 2)
    flat = steps.flatten(1)
    variances, directions = torch.linalg.eigh(flat @ flat.T / flat.shape[1])
    whitening = (directions / variances.sqrt()).T
    return (whitening @ flat).view_as(steps).float(), whitening @ components


def variation_weights(shape: tuple[int, ...]) -> torch.Tensor:
    """Compute the weights of first differences' magnitudes in the total variation of Eq. 3.

    Args:
        shape: (C, H, W).

    Returns:
        Shape (D): one over the number of differences along the same axis, as Eq. 3 has a mean for
        each axis.
    """
    channels, height, width = shape
    counts = [channels * (height - 1) * width, channels * height * (width - 1)]
    return torch.cat([torch.full((count // channels,), 1 / count) for count in counts if count])


@dataclass(frozen=True)
class FlatImage:
    """Image of one colour in one victim's mixture, in double precision.

    Args:
        row: u, with u G the image and u b = 1; Shape (neurons).
        image: Shape (F).
        space: orthonormal columns that span those of the gradients; Shape (neurons, n).
    """

    row: torch.Tensor
    image: torch.Tensor
    space: torch.Tensor

    def derivatives(self, candidates: torch.Tensor) -> torch.Tensor | None:
        """Select the image's derivatives at the layer's outputs from candidates, and scale them.

        Args:
            candidates: of the image, one for each label, up to a factor; Shape (K, neurons).

        Returns:
            Shape (neurons); None if none of them lies in the column space of the gradients.
        """
        if self.space.shape[0] == self.space.shape[1]:
            return None
        outside = candidates - candidates @ self.space @ self.space.T
        residuals = outside.norm(dim=1) / candidates.norm(dim=1)
        best = int(residuals.nan_to_num(nan=torch.inf).argmin())
        factor = self.row @ candidates[best]
        if not residuals[best] < LARGEST_RESIDUAL or factor <= 0:
            return None
        return candidates[best] / factor


def find_flat_image(
    weight: torch.Tensor, bias: torch.Tensor, most: int, shape: tuple[int, ...]
) -> FlatImage | None:
    """Find the image of one colour in one victim's mixture.

    The number of images that differ from pixel to pixel is the rank of the mixtures' differences;
    if the rank of the mixtures, including the bias, is higher by one, one image does not.

    Args:
        weight: G; Shape (neurons, F).
        bias: b; Shape (neurons).
        most: maximum number of samples.
        shape: of an image, (C, H, W).

    Returns:
        None if there is none, if there are several, or if noise hides it.
    """
    weight, bias = weight.double(), bias.double()
    joint = torch.cat([weight, weight.shape[1] ** 0.5 * bias[:, None]], 1)
    squares, directions = torch.linalg.eigh(joint @ joint.T)
    least = ROUNDING * squares[-1].clamp(min=0).sqrt()
    space = directions[:, squares.clamp(min=0).sqrt() > least]
    components = (space.T @ weight).unflatten(1, shape)
    steps = differences(components, orders=1).flatten(1)
    if not 0 < space.shape[1] <= most:
        return None
    left, values, _ = torch.linalg.svd(steps @ steps.T)
    flat = values.sqrt() <= least
    row = space @ left[:, -1]
    factor = row @ bias
    if int(flat.sum()) != 1 or factor.abs() <= least / weight.shape[1] ** 0.5:
        return None
    colours = (row @ weight / factor).unflatten(0, shape).mean((1, 2), keepdim=True)
    return FlatImage(row / factor, colours.expand(shape).flatten(), space)


def without(
    mixture: Mixture, victim: int, image: FlatImage, derivatives: torch.Tensor | None
) -> Mixture:
    """Remove the image of one colour from the mixture of one victim.

    Args:
        mixture: of V victims; not modified.
        victim: its index.
        image: of this victim.
        derivatives: of the image at the layer's outputs, Shape (neurons). None: unknown; then the
            remaining images may contain arbitrary shares of this one.
    """
    taken = image.row / image.row.square().sum() if derivatives is None else derivatives
    weight, bias = mixture.weight.clone(), mixture.bias.clone()
    rest = weight[victim].double() - taken[:, None] * (image.row @ weight[victim].double())
    weight[victim], bias[victim] = rest.to(weight), (bias[victim].double() - taken).to(bias)
    return Mixture(weight, bias)
