"""Specification of a convolution, for cost estimates without torch and for building it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gleak.core.lazy import torch


@dataclass(frozen=True)
class Convolution:
    """Square convolution with an odd kernel size.

    With padding, only the stride reduces the image; without, the kernel stays within the image.
    """

    inputs: int
    outputs: int
    kernel: int = 3
    stride: int = 1
    padded: bool = True

    @property
    def padding(self) -> int:
        """Number of zeros on each side of the image."""
        return self.kernel // 2 if self.padded else 0

    @property
    def weights(self) -> int:
        """Number of weights, without biases."""
        return self.kernel**2 * self.inputs * self.outputs

    def sides(self, sides: tuple[int, ...]) -> tuple[int, ...]:
        """Return height and width of the outputs."""
        lost = self.kernel - 1 - 2 * self.padding
        return tuple(math.ceil((side - lost) / self.stride) for side in sides)

    def layer(self, *, bias: bool = True) -> torch.nn.Conv2d:
        """Build the layer."""

        return torch.nn.Conv2d(
            self.inputs,
            self.outputs,
            self.kernel,
            self.stride,
            padding=self.padding,
            bias=bias,
        )
