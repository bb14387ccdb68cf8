"""Variational block of PRECODE (Scheliga et al. 2022)."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from typing_extensions import override

from gleak.models.parameters import shared_copy
from gleak.models.sample_losses import Penalised

if TYPE_CHECKING:
    from gleak.models.base import PrecodeNetwork


class GaussianSample(Penalised):
    """Samples of Gaussians with given means and deviations, b = mu + sigma eps.

    Deviations are softplus(s) of given values s (ours: exponentials of log-variances would overflow
    earlier). In training mode, samples are drawn from torch's global random state; in evaluation
    mode eps is zero, or ``noise`` (see `with_noise_as_input`). The penalty is beta times
    KL(N(mu, sigma^2) || N(0, 1)) in nats, summed over the k values of a sample (Kingma and Welling
    2014, Appendix B).

    Args:
        beta: weight of the divergence.
    """

    def __init__(self, beta: float) -> None:
        super().__init__()
        self.beta, self.spread = beta, 1.0
        self.noise: Tensor | None = None

    def forward(self, statistics: Tensor) -> Tensor:
        """Map means and values s of deviations, Shape (N, 2 k), to samples, Shape (N, k)."""
        means, deviations = _means_and_deviations(statistics)
        if self.training:
            return means + self.spread * deviations * torch.randn_like(means)
        return means if self.noise is None else means + deviations * self.noise

    @override
    def penalty(self, inputs: Tensor) -> Tensor:
        means, deviations = _means_and_deviations(inputs)
        squares = means.square() + deviations.square()
        return self.beta * ((squares - 1) / 2 - deviations.log()).sum(-1)


def _means_and_deviations(statistics: Tensor) -> tuple[Tensor, Tensor]:
    means, values = statistics.chunk(2, dim=-1)
    return means, functional.softplus(values)


def noise_sizes(network: nn.Module, shape: tuple[int, ...]) -> list[int]:
    """Return the number of values that each variational layer samples, in the order of layers.

    Args:
        network: in evaluation mode.
        shape: of a sample.
    """
    sizes: dict[nn.Module, int] = {}

    def note(layer: nn.Module, _: Any, output: Tensor) -> None:
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


def sampling(network: nn.Module) -> list[GaussianSample]:
    """Return the variational layers of a network."""
    return [layer for layer in network.modules() if isinstance(layer, GaussianSample)]


def with_noise_as_input(network: nn.Module, shape: tuple[int, ...]) -> nn.Module:
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
    shape: tuple[int, ...], sizes: Sequence[int], network: nn.Module, given: tuple[Tensor]
) -> Tensor:
    """Give each variational layer its noise, and return the samples."""
    values, *noise = given[0].split([math.prod(shape), *sizes], dim=1)
    for layer, part in zip(sampling(network), noise, strict=True):
        layer.noise = part
    return values.unflatten(1, shape)


def _forget_noise(network: nn.Module, *_: Any) -> None:
    for layer in sampling(network):
        layer.noise = None


def variational_layers(model: PrecodeNetwork, features: int) -> list[nn.Module]:
    """Return the variational block of a model, from features to as many features, or no layer.

    Args:
        model: spec with the size of the bottleneck and the weight of the divergence.
        features: number of inputs of the last dense layer.
    """
    if not model.precode:
        return []
    parts: dict[str, nn.Module] = {
        "encoder": nn.Linear(features, 2 * model.precode),
        "sample": GaussianSample(model.beta),
        "decoder": nn.Linear(model.precode, features),
    }
    return [nn.Sequential(OrderedDict(parts))]
