"""Variational block of PRECODE (Scheliga et al. 2022)."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from gleak.core.lazy import torch
from gleak.models.parameters import shared_copy

if TYPE_CHECKING:
    from gleak.models.base import PrecodeNetwork
    from gleak.models.layers import GaussianSample


def noise_sizes(network: torch.nn.Module, shape: tuple[int, ...]) -> list[int]:
    """Return the number of values that each variational layer samples, in the order of layers.

    Args:
        network: in evaluation mode.
        shape: of a sample.
    """
    sizes: dict[torch.nn.Module, int] = {}

    def note(layer: torch.nn.Module, _: Any, output: torch.Tensor) -> None:
        sizes[layer] = output.shape[-1]

    layers = sampling(network)
    hooks = [layer.register_forward_hook(note) for layer in layers]
    try:
        with torch.no_grad():
            network(next(network.parameters()).new_zeros(2, *shape))
    finally:
        for hook in hooks:
            hook.remove()
    return [sizes[layer] for layer in layers if layer in sizes]


def sampling(network: torch.nn.Module) -> list[GaussianSample]:
    """Return the variational layers of a network."""
    from gleak.models.layers import GaussianSample

    return [layer for layer in network.modules() if isinstance(layer, GaussianSample)]


def with_noise_as_input(network: torch.nn.Module, shape: tuple[int, ...]) -> torch.nn.Module:
    """Return a copy, of shared parameters, whose inputs are flat samples and then all noise.

    It maps Shape (N, P + K) to logits, P the values of a sample and K those of `noise_sizes`. So
    everything that differentiates a network by its samples does so by the noise, too.

    Args:
        network: in evaluation mode.
        shape: of a sample.
    """
    copied = shared_copy(network)
    copied.register_forward_pre_hook(partial(_split, shape, noise_sizes(network, shape)))
    copied.register_forward_hook(_forget_noise)
    return copied


def _split(
    shape: tuple[int, ...],
    sizes: Sequence[int],
    network: torch.nn.Module,
    given: tuple[torch.Tensor],
) -> torch.Tensor:
    """Give each variational layer its noise, and return the samples."""
    values, *noise = given[0].split([math.prod(shape), *sizes], dim=1)
    for layer, part in zip(sampling(network), noise, strict=True):
        layer.noise = part
    return values.unflatten(1, shape)


def _forget_noise(network: torch.nn.Module, *_: Any) -> None:
    for layer in sampling(network):
        layer.noise = None


def variational_layers(model: PrecodeNetwork, features: int) -> list[torch.nn.Module]:
    """Return the variational block of a model, from features to as many features, or no layer.

    Args:
        model: spec with the size of the bottleneck and the weight of the divergence.
        features: number of inputs of the last dense layer.
    """
    if not model.precode:
        return []
    from gleak.models.layers import GaussianSample

    parts: dict[str, torch.nn.Module] = {
        "encoder": torch.nn.Linear(features, 2 * model.precode),
        "sample": GaussianSample(model.beta),
        "decoder": torch.nn.Linear(model.precode, features),
    }
    return [torch.nn.Sequential(OrderedDict(parts))]
