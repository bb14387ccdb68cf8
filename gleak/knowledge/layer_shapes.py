"""Shapes of layers, from which costs are estimated without torch, and layers built from them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, TypeVar

from gleak.core.lazy import torch

Sides = tuple[int, int]
"""Height and width."""
SMALLEST_SIDE = 4
"""Features with a shorter side are not halved."""
Layer = TypeVar("Layer", bound="torch.nn.Module")


class LayerShape(NamedTuple):
    """Shape of a convolution with a bias and a square kernel.

    Args:
        inputs: number of input channels.
        outputs: number of output channels.
        sides: height and width of the outputs.
        kernel: side of the kernel.
    """

    inputs: int
    outputs: int
    sides: Sides
    kernel: int = 3

    @property
    def weights(self) -> int:
        """Number of weights, without the biases."""
        return self.inputs * self.outputs * self.kernel**2

    @property
    def multiply_adds(self) -> int:
        """Multiply-adds of one sample."""
        height, width = self.sides
        return self.weights * height * width


def dense_shape(inputs: int, outputs: int) -> LayerShape:
    """Return the shape of a dense layer, as that of a convolution of a single pixel."""
    return LayerShape(inputs, outputs, (1, 1), kernel=1)


def total_multiply_adds(layers: Iterable[LayerShape]) -> int:
    """Return the multiply-adds of one sample in all layers."""
    return sum(layer.multiply_adds for layer in layers)


def total_parameters(layers: Iterable[LayerShape]) -> int:
    """Return the number of weights and biases of all layers."""
    return sum(layer.weights + layer.outputs for layer in layers)


def halved(sides: Sides) -> Sides:
    """Return height and width after a padded convolution with stride 2."""
    height, width = sides
    return (height + 1) // 2, (width + 1) // 2


def pyramid(sides: Sides, levels: int) -> list[Sides]:
    """Return heights and widths before any halving and after each of ``levels`` halvings."""
    sides_of_levels = [sides]
    for _ in range(levels):
        sides_of_levels.append(halved(sides_of_levels[-1]))
    return sides_of_levels


def full_pyramid(sides: Sides) -> list[Sides]:
    """Return the longest `pyramid` whose sides, after the first level, reach `SMALLEST_SIDE`."""
    sides_of_levels = [sides]
    while min(smaller := halved(sides_of_levels[-1])) >= SMALLEST_SIDE:
        sides_of_levels.append(smaller)
    return sides_of_levels


def channels_at_levels(width: int, levels: int, widest: int) -> list[int]:
    """Return the channels at each level of a `pyramid`.

    They double after each halving, up to ``widest`` times ``width``.
    """
    return [width * min(2**level, widest) for level in range(levels + 1)]


def conv3x3(inputs: int, outputs: int, stride: int = 1) -> torch.nn.Conv2d:
    """Build a 3 x 3 convolution with zero padding."""

    return torch.nn.Conv2d(inputs, outputs, 3, stride, padding=1)


def zero_initialised(layer: Layer) -> Layer:
    """Set all parameters of a layer to zero, so that its outputs are zero before training."""

    for parameter in layer.parameters():
        torch.nn.init.zeros_(parameter)
    return layer
