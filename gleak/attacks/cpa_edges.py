"""The cocktail party attack on edges: independent components of differences between pixels."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from gleak.artifacts.reconstruction import Reconstruction
from gleak.attacks.base import LABELS, AttackSummary
from gleak.attacks.first_layer import output_slopes
from gleak.attacks.observation import Observation
from gleak.attacks.unmixing.independent_components import (
    LAPLACIAN,
    Contrast,
    fixed_point,
    maximise_likelihood,
)
from gleak.attacks.unmixing.mixtures import (
    ROUNDING,
    Mixture,
    Sources,
    Unmixing,
    principal_components,
    visible_sources,
)
from gleak.attacks.unmixing_attack import SCALE, InputUnmixing, Scale
from gleak.core.lazy import torch
from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.models.layer_search import layer_of_samples
from gleak.runtime.checkpointing import Part

FAINT = 0.01
"""Weight of the mean colours relative to the differences."""
LARGEST_RESIDUAL = 1e-2
"""Largest relative distance of an image's derivatives from the space of the mixture's."""
POWER = parameter(0.5, "of the differences' magnitude in the likelihood", source="ours", gt=0, le=1)


def differences(images: torch.Tensor, orders: int = 2) -> torch.Tensor:
    """Compute differences along rows and columns, of the first order and optionally the second.

    A side too short for an order has no such differences. Those of all channels at one position are
    in one column; Shape (K, C, H, W) to (K, C, D).
    """
    steps = []
    for axis in (2, 3):
        differing = images
        for _ in range(orders):
            differing = differing.diff(dim=axis)
            steps.append(differing.flatten(2))
    return torch.cat(steps, 2)


def white_differences(
    mixtures: torch.Tensor, count: int, shape: tuple[int, ...]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute differences of mixed images, transformed to unit covariance.

    Every victim's are those of its n largest principal components. The images' mean colours count
    as one more position, with a small weight: for an image of one colour, which has no differences,
    they are the only signal.

    Returns:
        The signals, Shape (V, n, C, D), and the transform from the mixtures' rows, in double
        precision, Shape (V, n, rows).
    """
    signals, transforms = [], []
    for rows in mixtures.double():
        components = principal_components(rows, count)
        images = (components @ rows).unflatten(1, shape)
        steps = torch.cat([differences(images), FAINT * images.mean((2, 3))[..., None]], 2)
        flat = steps.flatten(1)
        variances, directions = torch.linalg.eigh(flat @ flat.T / flat.shape[1])
        whitening = (directions / variances.sqrt()).T
        signals.append((whitening @ flat).view_as(steps).float())
        transforms.append(whitening @ components)
    return torch.stack(signals), torch.stack(transforms)


def unmix_edges(mixture: Mixture, count: int, shape: tuple[int, ...], power: float) -> Unmixing:
    """Unmix images by FastICA, then maximum likelihood with a `Contrast`, of their differences."""
    white, transform = white_differences(mixture.weight, count, shape)
    first = fixed_point(white, LAPLACIAN)
    unmixing = maximise_likelihood(white, first, Contrast(power, smoothing=0.1))
    return replace(unmixing, rows=unmixing.rows.double() @ transform)


@dataclass(frozen=True)
class FlatImage:
    """Image of one colour in one victim's mixture, Shape (F), in double precision.

    The row u, Shape (neurons), gives it: u G is the image and u b = 1. The space has orthonormal
    columns that span those of the gradients; Shape (neurons, n).
    """

    row: torch.Tensor
    image: torch.Tensor
    space: torch.Tensor

    def derivatives(self, candidates: torch.Tensor) -> torch.Tensor | None:
        """Select the image's derivatives at the layer's outputs from candidates, and scale them.

        There is a candidate for each label, up to a factor; Shape (K, neurons) to (neurons), or
        None if none of them lies in the column space of the gradients.
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
    """Find the image of one colour in one victim's mixture of at most so many samples.

    The number of images that differ from pixel to pixel is the rank of the mixtures' differences;
    if the rank of the mixtures, including the bias, is higher by one, one image does not. Return
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
    """Remove the image of one colour from the mixture of one victim, in a copy.

    If its derivatives at the layer's outputs, Shape (neurons), are not known, the remaining images
    may contain arbitrary shares of this one.
    """
    taken = image.row / image.row.square().sum() if derivatives is None else derivatives
    weight, bias = mixture.weight.clone(), mixture.bias.clone()
    rest = weight[victim].double() - taken[:, None] * (image.row @ weight[victim].double())
    weight[victim], bias[victim] = rest.to(weight), (bias[victim].double() - taken).to(bias)
    return Mixture(weight, bias)


def find_flat_images(observation: Observation, mixture: Mixture) -> dict[int, FlatImage]:
    """Return the image of one colour of each victim that has one, by the victim's index."""
    pairs = enumerate(zip(mixture.weight, mixture.bias, strict=True))
    shape, most = observation.input_shape, observation.batch_size
    images = {victim: find_flat_image(*pair, most, shape) for victim, pair in pairs}
    return {victim: image for victim, image in images.items() if image is not None}


@register("cpa_edges")
class CPAEdges(InputUnmixing):
    """CPA on better signals: the differences between neighbouring pixels instead of intensities.

    Intensities of natural images are close to Gaussian and similar across images, in their broad
    layout (bright above, dark below). Their differences are sparse, at the same places in all
    colours, and nearly independent across images; a mixture of images has the same mixture of
    differences. Plain independent component analysis therefore separates them, without weights to
    tune: FastICA's fixed point, then the maximum of a likelihood that does not require uncorrelated
    sources (see `gleak.attacks.unmixing.independent_components`).

    An image of one colour has no differences. It is found in the residual where the differences of
    all other images vanish; then its gradient is computed, for each label it may have, and
    subtracted. For several local steps its gradient is unknown, so the other images contain a share
    of it. Of several images of one colour none is found.
    """

    source = "ours, after CPA section III; Hyvarinen and Oja 2000; Ablin et al. 2018"
    modalities: ClassVar[frozenset[str]] = frozenset({"image"})

    scale: Scale = SCALE
    power: float = POWER

    def summary(self) -> AttackSummary:
        return AttackSummary(
            losses=("likelihood of edges",),
            optimizers=("fixed point", "quasi-Newton"),
            labels=LABELS["argmin"],
        )

    def unmix(self, mixture: Mixture, count: int, shape: tuple[int, ...], part: Part) -> Unmixing:
        return unmix_edges(mixture, count, shape, self.power)

    def separate(self, observation: Observation) -> Sources:
        """Recover the samples, the image of one colour of a victim last."""
        mixture, most = self.mixture(observation), observation.batch_size
        flat_images = find_flat_images(observation, mixture)
        if self.counted == "spectrum" or not flat_images:
            return super().separate(observation)
        shape, labels = observation.input_shape, torch.arange(observation.classes)
        layer = layer_of_samples(observation.model, shape)[0]
        for victim, flat in flat_images.items():
            copies = flat.image.unflatten(0, shape).expand(len(labels), *shape)
            slopes = output_slopes(observation, layer, copies, labels).double()
            mixture = without(mixture, victim, flat, flat.derivatives(slopes))
        counts = [
            min(count, most - (victim in flat_images))
            for victim, count in enumerate(visible_sources(mixture, most))
        ]
        sources = self.separate_counted(observation, mixture, counts, most)
        for victim, flat in flat_images.items():
            sources.values[victim, counts[victim]] = flat.image.to(sources.values)
            sources.factors[victim, counts[victim]] = 1
        return sources

    def reconstruct(self, observation: Observation) -> Reconstruction:
        return self.reconstruct_samples(observation, self.scale)
