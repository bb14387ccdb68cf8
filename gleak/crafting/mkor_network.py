"""MKOR: crafting of a whole network, and its responses to grey images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from gleak.core.errors import IncompatibleError
from gleak.core.lazy import torch
from gleak.crafting.mkor_layers import (
    check_paths,
    craft_classes,
    craft_convolutions,
    path_gains,
)
from gleak.crafting.mkor_views import Layout, plan_views, view_arrays
from gleak.models.chain import Chain, decompose
from gleak.models.layer_search import features_before
from gleak.runtime.seeding import stream, torch_stream

if TYPE_CHECKING:
    from gleak.crafting.mkor import MKOR

SLOPES = (1.0, 1.3, 1.6)
"""Exponents by which amplitudes fall with frequency; about 1 in photographs."""
OF_EACH = 4
GREYS = 4
LINEAR = ("ReLU", "Identity", "LeakyReLU")
"""Activations that are linear for positive inputs."""
CURVED_LEVELS = 33
FAINTEST = 1e-6
"""Least difference between black and white, relative to the largest feature, in float32."""


def plan_network(
    network: torch.nn.Module, shape: Sequence[int], crafting: MKOR
) -> tuple[Chain, Layout]:
    """Decompose a network into layers and plan the views of its channels.

    Args:
        network: in evaluation mode; not modified.
        shape: shape of an image.
        crafting: the spec.

    Raises:
        IncompatibleError: the network cannot be crafted; names the reason.
    """
    chain = decompose(network)
    if not chain.convolutions or not chain.dense:
        raise IncompatibleError("it has no convolutions before dense layers")
    layout = plan_views(chain.convolutions, shape, crafting.directions)
    probe = next(network.parameters()).new_zeros(1, *shape)
    with torch.no_grad():
        features = features_before(network, chain.dense[0].name)(probe)
    _check_features(chain, features, layout.windows.values)
    check_paths(chain.dense, crafting)
    return chain, layout


def craft_network(
    network: torch.nn.Module, shape: Sequence[int], crafting: MKOR, seed: int
) -> dict[str, np.ndarray]:
    """Craft a network in place.

    Args:
        network: in evaluation mode.
        shape: shape of an image.
        crafting: the spec.
        seed: seed of the run.

    Returns:
        The secret of the server; see `gleak.crafting.mkor.MKOR.craft`.

    Raises:
        IncompatibleError: the network cannot be crafted; names the reason.
    """
    chain, layout = plan_network(network.requires_grad_(False), shape, crafting)
    probes, random = synthetic_images(shape, seed), torch_stream(seed, "crafting")
    channels = craft_convolutions(chain, layout, probes, crafting, random)
    features_of = features_before(network, chain.dense[0].name)
    paths = craft_classes(chain.dense, features_of(probes), crafting, random)
    _cover(chain, crafting.cover, random)
    if crafting.sink:
        sink = int(stream(seed, "sink").integers(len(paths.rows)))
        chain.dense[-1].layer.bias[sink] += crafting.sink
    return {
        **view_arrays(layout, channels.numpy()),
        **grey_responses(network, chain, channels, shape),
        "rows": paths.rows.numpy(),
        "gains": path_gains(chain.dense, features_of(probes), paths.rows).numpy(),
        "pairs": np.array([int(paths.pairs)]),
        "kept": np.array([np.prod([1 - step.dropout for step in chain.dense])]),
        "chances": network(probes).softmax(1).mean(0).numpy(),
    }


def _cover(chain: Chain, amount: float, random: torch.Generator) -> None:
    """Add noise to every weight, relative to the deviation of its layer's weights."""
    weights = [step.layer.weight for step in chain.convolutions]
    for weight in [*weights, *(step.layer.weight for step in chain.dense)]:
        noise = weight.new_empty(weight.shape).normal_(generator=random)
        weight.add_(amount * weight.std() * noise)


def synthetic_images(shape: Sequence[int], seed: int) -> torch.Tensor:
    """Draw synthetic images: random fields with spectra like photographs, and grey images.

    Returns:
        Shape (M, *shape), in [0, 1].
    """
    random = torch_stream(seed, "made-up images")
    clouds = [_cloud(shape, slope, random) for slope in SLOPES for _ in range(OF_EACH)]
    greys = torch.linspace(0, 1, GREYS)[:, None, None, None].expand(GREYS, *shape)
    return torch.cat([torch.stack(clouds), greys])


def _cloud(shape: Sequence[int], slope: float, random: torch.Generator) -> torch.Tensor:
    """Draw a random field with a falling spectrum and correlated colours."""
    colours, height, width = shape
    frequencies = torch.hypot(torch.fft.fftfreq(height)[:, None], torch.fft.rfftfreq(width))
    amplitudes = frequencies.clamp(min=1 / height) ** -slope
    noise = torch.randn(1 + colours, height, width, generator=random)
    fields = torch.fft.irfft2(torch.fft.rfft2(noise) * amplitudes, s=(height, width))
    fields = fields / fields.std((1, 2), keepdim=True)
    brightness, contrast = torch.rand(2, generator=random)
    mixed = 0.8 * fields[:1] + 0.6 * fields[1:]
    return (0.2 + 0.6 * brightness + (0.1 + 0.2 * contrast) * mixed).clamp(0, 1)


def _check_features(chain: Chain, features: torch.Tensor, values: int) -> None:
    """Raise `IncompatibleError` if feature maps are resized before the first dense layer."""
    channels = chain.convolutions[-1].layer.out_channels
    if features.shape[1] != channels * values**2:
        raise IncompatibleError(
            f"its first dense layer has {features.shape[1]} inputs, but the convolutions give "
            f"{channels} x {values} x {values}; choose images of the size it was designed for"
        )


def grey_responses(
    network: torch.nn.Module, chain: Chain, channels: torch.Tensor, shape: Sequence[int]
) -> dict[str, np.ndarray]:
    """Compute the features of grey images, by which a server converts features into intensities.

    The mapping from intensities to features (activations, batch normalisation, unchanged weights,
    padding) is thus inverted without being modelled.

    Args:
        network: the crafted network.
        chain: its layers.
        channels: Shape (K), channels of the last convolution that carry views.
        shape: shape of an image.

    Returns:
        ``levels``, Shape (L), the intensities; ``responses``, Shape (L, K, values, values).

    Raises:
        IncompatibleError: black and white images have the same features.
    """
    with torch.no_grad():
        linear = all(type(step.activation).__name__ in LINEAR for step in chain.convolutions)
        levels = torch.linspace(0, 1, 2 if linear else CURVED_LEVELS)
        features_of = features_before(network, chain.dense[0].name)
        greys = levels[:, None, None, None].expand(-1, *shape)
        found = torch.cat([features_of(grey) for grey in greys.split(1)])
        maps = found.unflatten(1, _maps(chain, found))[:, channels]
        if (maps[-1] - maps[0]).abs().max() <= FAINTEST * maps.abs().max():
            raise IncompatibleError(
                f"after {len(chain.convolutions)} convolutions black and white images have the "
                "same features; choose a larger beta or an activation that does not saturate"
            )
        return {"levels": levels.numpy(), "responses": maps.numpy()}


def _maps(chain: Chain, features: torch.Tensor) -> tuple[int, int, int]:
    count = chain.convolutions[-1].layer.out_channels
    side = round((features.shape[1] / count) ** 0.5)
    return count, side, side
