"""Layers that the networks of knowledge are made of."""

from __future__ import annotations

from typing import TypeVar

from torch import Tensor, nn
from torch.nn import functional

from gleak.knowledge.convolutions import Sides

Layer = TypeVar("Layer", bound=nn.Module)


def conv(inputs: int, outputs: int, stride: int = 1) -> nn.Conv2d:
    """A convolution of 3 x 3 windows, padded with zeros."""
    return nn.Conv2d(inputs, outputs, 3, stride, padding=1)


def silenced(layer: Layer) -> Layer:
    """The layer, giving nothing but zeros until it is trained."""
    for parameter in layer.parameters():
        nn.init.zeros_(parameter)
    return layer


def enlarge(features: Tensor, sides: Sides) -> Tensor:
    """Nearest-neighbour scaling, whose gradient is the same every time on a GPU, too."""
    return functional.interpolate(features, size=sides, mode="nearest")


class Enlarge(nn.Module):
    """Nearest-neighbour scaling to a fixed height and width.

    Args:
        sides: wanted.
    """

    def __init__(self, sides: Sides) -> None:
        super().__init__()
        self.sides = sides

    def forward(self, features: Tensor) -> Tensor:
        """Shape (M, C, *sides)."""
        return enlarge(features, self.sides)
