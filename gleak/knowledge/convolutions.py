"""Convolutions as they are planned: their channels and sizes, from which costs follow."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

Sides = tuple[int, int]
"""Height and width."""
SMALLEST_SIDE = 4
"""Below which features are not halved."""


class Convolution(NamedTuple):
    """One convolution with a bias, on square windows.

    Args:
        inputs, outputs: channels.
        sides: height and width of what it makes.
        kernel: side of its window.
    """

    inputs: int
    outputs: int
    sides: Sides
    kernel: int = 3

    @property
    def weights(self) -> int:
        """Values of its kernels."""
        return self.inputs * self.outputs * self.kernel**2

    @property
    def multiply_adds(self) -> int:
        """Of one sample."""
        height, width = self.sides
        return self.weights * height * width


def dense(inputs: int, outputs: int) -> Convolution:
    """A dense layer, as a convolution of a single pixel."""
    return Convolution(inputs, outputs, (1, 1), kernel=1)


def total_work(layers: Iterable[Convolution]) -> int:
    """Multiply-adds of one sample."""
    return sum(layer.multiply_adds for layer in layers)


def total_size(layers: Iterable[Convolution]) -> int:
    """Kernels and biases."""
    return sum(layer.weights + layer.outputs for layer in layers)


def halve(sides: Sides) -> Sides:
    """What a convolution with stride 2 leaves of a height and a width, padded at every side."""
    height, width = sides
    return (height + 1) // 2, (width + 1) // 2


def pyramid(sides: Sides, levels: int) -> list[Sides]:
    """Heights and widths before any halving and after each."""
    found = [sides]
    for _ in range(levels):
        found.append(halve(found[-1]))
    return found


def whole_pyramid(sides: Sides) -> list[Sides]:
    """A `pyramid` down to `SMALLEST_SIDE` or little more; the sides themselves at the least."""
    found = [sides]
    while min(smaller := halve(found[-1])) >= SMALLEST_SIDE:
        found.append(smaller)
    return found


def widths(width: int, levels: int, widest: int) -> list[int]:
    """Channels at each of `pyramid`: twice as many after each halving, up to ``widest`` times."""
    return [width * min(2**level, widest) for level in range(levels + 1)]
