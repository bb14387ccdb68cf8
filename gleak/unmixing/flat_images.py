"""Images of one colour among those that a dense layer's gradients mix.

Their differences from pixel to pixel are all zero, so that unmixing by differences does not see
them, and adds any share of them to the other images. But in the space of the gradients they are
what is left where differences vanish.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gleak.unmixing.edges import differences
from gleak.unmixing.mixtures import ROUNDING, Mixture

LARGEST_RESIDUAL = 1e-2
"""Relative distance of a sample's derivatives to those of the mixture, up to which they are its."""


@dataclass(frozen=True)
class FlatImage:
    """The image of one colour in one victim's mixture, in double precision.

    Args:
        row: u, with u G the image and u b = 1; Shape (neurons).
        image: Shape (F).
        space: orthonormal columns that span those of the gradients; Shape (neurons, n).
    """

    row: Tensor
    image: Tensor
    space: Tensor

    def derivatives(self, candidates: Tensor) -> Tensor | None:
        """Which of some derivatives at the layer's outputs are the image's, in their true scale.

        Args:
            candidates: of the image, one for each label, up to a factor; Shape (K, neurons).

        Returns:
            Shape (neurons); None where none of them lies among the gradients' columns.
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
    weight: Tensor, bias: Tensor, most: int, shape: tuple[int, ...]
) -> FlatImage | None:
    """The image of one colour in one victim's mixture.

    As many images differ from pixel to pixel as differences of the mixtures have rank; if the rank
    of the mixtures, the bias's among them, is higher by one, one image does not.

    Args:
        weight: G; Shape (neurons, F).
        bias: b; Shape (neurons).
        most: samples there can be.
        shape: of an image, (C, H, W).

    Returns:
        None where there is none, where there are several, and where noise hides it.
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


def without(mixture: Mixture, victim: int, image: FlatImage, derivatives: Tensor | None) -> Mixture:
    """The mixtures, of one victim without its image of one colour.

    Args:
        mixture: of V victims; left as it is.
        victim: which one.
        image: of it.
        derivatives: of the image at the layer's outputs, Shape (neurons). None: unknown; then what
            is left of the other images can have any share of this one.
    """
    taken = image.row / image.row.square().sum() if derivatives is None else derivatives
    weight, bias = mixture.weight.clone(), mixture.bias.clone()
    rest = weight[victim].double() - taken[:, None] * (image.row @ weight[victim].double())
    weight[victim], bias[victim] = rest.to(weight), (bias[victim].double() - taken).to(bias)
    return Mixture(weight, bias)
