"""Prior of images by the running statistics of batch normalisation (GradInversion)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from gleak.core.errors import IncompatibleError

Statistics = tuple[Tensor, Tensor]
"""Mean and variance of each victim's channels; Shape (V, C) each."""
EPSILON = 1e-12
"""Added under roots, whose derivative at zero is infinite."""


@dataclass(frozen=True)
class BatchNormPrior:
    """Distance of a batch's statistics from those that the broadcast network has kept.

    A network that was trained with batch normalisation keeps running means and variances of its
    training data. Images of that kind have similar statistics in every layer.

    Args:
        network: in evaluation mode.
        layers: its batch normalisation layers.
    """

    network: nn.Module
    layers: Sequence[nn.BatchNorm2d]

    @classmethod
    def of(cls, network: nn.Module) -> BatchNormPrior:
        """Return the prior of a network.

        Raises:
            IncompatibleError: no layer keeps running statistics.
        """
        layers = [
            layer
            for layer in network.modules()
            if isinstance(layer, nn.BatchNorm2d) and layer.running_mean is not None
        ]
        if not layers:
            raise IncompatibleError(
                "the prior by batch normalisation needs a network that keeps running statistics, "
                "and this one has no such layer; use batch_norm=0, or a network with norm=batch"
            )
        return cls(network, layers)

    def __call__(self, inputs: Tensor) -> Tensor:
        """Compute the prior of each victim (GradInversion Eq. 8).

        Norms are divided by the square root of the channels, so that layers count alike, and means
        and variances by the running deviation and variance, so that they have no unit.

        Args:
            inputs: Shape (V, N, C, H, W).

        Returns:
            Shape (V), the mean over layers, differentiable.
        """
        found: dict[nn.Module, Statistics] = {}
        hooks = [
            layer.register_forward_pre_hook(partial(_keep, found, len(inputs)))
            for layer in self.layers
        ]
        try:
            self.network(inputs.flatten(0, 1))
        finally:
            for hook in hooks:
                hook.remove()
        distances = [_distance(layer, *found[layer]) for layer in self.layers if layer in found]
        return torch.stack(distances).mean(0)


def _keep(
    found: dict[nn.Module, Statistics], victims: int, layer: nn.Module, given: tuple[Any, ...]
) -> None:
    values = given[0].unflatten(0, (victims, -1)).transpose(1, 2).flatten(2)
    found[layer] = (values.mean(2), values.var(2, unbiased=False))


def _distance(layer: nn.BatchNorm2d, mean: Tensor, variance: Tensor) -> Tensor:
    """Compute a layer's distance; Shape (V)."""
    assert layer.running_mean is not None
    assert layer.running_var is not None
    kept = layer.running_var + layer.eps
    of_means = ((mean - layer.running_mean) / kept.sqrt()).square().mean(1)
    of_variances = ((variance - layer.running_var) / kept).square().mean(1)
    return (of_means + EPSILON).sqrt() + (of_variances + EPSILON).sqrt()
