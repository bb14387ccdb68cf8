"""MKOR's crafting of a whole network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Generator, Tensor, nn

from gleak.core.errors import IncompatibleError
from gleak.crafting.mkor_classes import check_paths, craft_classes, path_gains
from gleak.crafting.mkor_convolutions import craft_convolutions
from gleak.crafting.mkor_greys import responses
from gleak.crafting.mkor_views import Layout, plan_views, view_arrays
from gleak.models.chain import Chain, decompose
from gleak.models.layer_search import features_before
from gleak.runtime.seeding import stream, torch_stream

if TYPE_CHECKING:
    from gleak.crafting.mkor import MKOR

SLOPES = (1.0, 1.3, 1.6)
"""By which power amplitudes fall with frequency; in photographs about the first."""
OF_EACH = 4
GREYS = 4


def plan_network(network: nn.Module, shape: Sequence[int], crafting: MKOR) -> tuple[Chain, Layout]:
    """Take a network apart and decide which of its channels show what.

    Args:
        network: in evaluation mode; left as it is.
        shape: of an image.
        crafting: its fields.

    Raises:
        IncompatibleError: the network is not one that can be crafted so; says why.
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
    network: nn.Module, shape: Sequence[int], crafting: MKOR, seed: int
) -> dict[str, np.ndarray]:
    """Craft a network in place.

    Args:
        network: in evaluation mode.
        shape: of an image.
        crafting: its fields.
        seed: of the run.

    Returns:
        What the server remembers; see `gleak.crafting.mkor.MKOR.craft`.

    Raises:
        IncompatibleError: the network is not one that can be crafted so; says why.
    """
    chain, layout = plan_network(network.requires_grad_(False), shape, crafting)
    probes, random = synthetic_images(shape, seed), torch_stream(seed, "crafting")
    channels = craft_convolutions(chain, layout, probes, crafting, random)
    features_of = features_before(network, chain.dense[0].name)
    paths = craft_classes(chain.dense, features_of(probes), crafting, random)
    _cover(chain, crafting.cover, random)
    if crafting.sink:
        drowned = int(stream(seed, "sink").integers(len(paths.rows)))
        chain.dense[-1].layer.bias[drowned] += crafting.sink
    return {
        **view_arrays(layout, channels.numpy()),
        **responses(network, chain, channels, shape),
        "rows": paths.rows.numpy(),
        "gains": path_gains(chain.dense, features_of(probes), paths.rows).numpy(),
        "pairs": np.array([int(paths.pairs)]),
        "kept": np.array([np.prod([1 - step.dropout for step in chain.dense])]),
        "chances": network(probes).softmax(1).mean(0).numpy(),
    }


def _cover(chain: Chain, amount: float, random: Generator) -> None:
    """Noise on every weight, in the deviation of its layer's weights."""
    weights = [step.layer.weight for step in chain.convolutions]
    for weight in [*weights, *(step.layer.weight for step in chain.dense)]:
        noise = weight.new_empty(weight.shape).normal_(generator=random)
        weight.add_(amount * weight.std() * noise)


def synthetic_images(shape: Sequence[int], seed: int) -> Tensor:
    """Images that need no data: clouds, with spectra like those of photographs, and greys.

    Returns:
        Shape (M, *shape), in [0, 1].
    """
    random = torch_stream(seed, "made-up images")
    clouds = [_cloud(shape, slope, random) for slope in SLOPES for _ in range(OF_EACH)]
    greys = torch.linspace(0, 1, GREYS)[:, None, None, None].expand(GREYS, *shape)
    return torch.cat([torch.stack(clouds), greys])


def _cloud(shape: Sequence[int], slope: float, random: Generator) -> Tensor:
    """A random field with a falling spectrum, its colours alike but not the same."""
    colours, height, width = shape
    frequencies = torch.hypot(torch.fft.fftfreq(height)[:, None], torch.fft.rfftfreq(width))
    amplitudes = frequencies.clamp(min=1 / height) ** -slope
    noise = torch.randn(1 + colours, height, width, generator=random)
    fields = torch.fft.irfft2(torch.fft.rfft2(noise) * amplitudes, s=(height, width))
    fields = fields / fields.std((1, 2), keepdim=True)
    brightness, contrast = torch.rand(2, generator=random)
    mixed = 0.8 * fields[:1] + 0.6 * fields[1:]
    return (0.2 + 0.6 * brightness + (0.1 + 0.2 * contrast) * mixed).clamp(0, 1)


def _check_features(chain: Chain, features: Tensor, values: int) -> None:
    """Refuse networks that resize what convolutions make before the first dense layer.

    Raises:
        IncompatibleError: says what was expected.
    """
    channels = chain.convolutions[-1].layer.out_channels
    if features.shape[1] != channels * values**2:
        raise IncompatibleError(
            f"its first dense layer is given {features.shape[1]} values, and the convolutions make "
            f"{channels} x {values} x {values}; choose images of the size it was designed for"
        )
