"""Architectures with a planted layer behind kernels that the server sets for each client."""

from __future__ import annotations

import math
from typing import ClassVar

from gleak.core.lazy import torch
from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.models.base import Convolution, FirstLayer
from gleak.models.planted import PlantedSpec


@register("planted_kernels")
class PlantedKernels(PlantedSpec):
    """Any architecture behind a convolution and a dense layer, which add to the samples.

    As `planted`, but the dense layer takes the outputs of a convolution. Each group of its kernels
    has as many channels as the images, and one more: if a server gives each client kernels that
    pass the image in one group only, the clients of a sum have gradients at inputs of their own
    (`gleak.crafting.loki`). The weights grow with the number of groups: Zhao et al. name the size
    of the update as the price of the attack.
    """

    source = "Zhao et al. 2024 (Loki); the sum and the additional channel are ours"
    first_layer: ClassVar[FirstLayer] = "convolution"

    groups: int = parameter(
        10, "groups of kernels, one for each client of a sum", source="ours", ge=1
    )

    def planted(self, shape: tuple[int, ...]) -> torch.nn.Module:
        from gleak.models import layers

        return layers.PlantedKernels(shape, self.groups, self.bins, self.activation)

    def multiply_adds(self, shape: tuple[int, ...], classes: int) -> int:
        convolution, pixels = self._kernels(shape), math.prod(shape[1:])
        inputs = convolution.outputs * pixels
        dense = self.bins * (inputs + math.prod(shape))
        return convolution.weights * pixels + dense + self.model.multiply_adds(shape, classes)

    def parameters(self, shape: tuple[int, ...], classes: int) -> int:
        convolution, values = self._kernels(shape), math.prod(shape)
        inputs = convolution.outputs * math.prod(shape[1:])
        kernels = convolution.weights + convolution.outputs
        dense = self.bins * (inputs + values) + self.bins + values
        return kernels + dense + self.model.parameters(shape, classes)

    def _kernels(self, shape: tuple[int, ...]) -> Convolution:
        return Convolution(shape[0], self.groups * (shape[0] + 1))
