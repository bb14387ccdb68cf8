"""A convolution described: for estimates without torch, and to be built."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class Convolution:
    """A square convolution of odd size.

    Padded, only its stride shrinks the image; else it is used where all of its kernel lies within.
    """

    inputs: int
    outputs: int
    kernel: int = 3
    stride: int = 1
    padded: bool = True

    @property
    def padding(self) -> int:
        """Zeros on each side of the image."""
        return self.kernel // 2 if self.padded else 0

    @property
    def weights(self) -> int:
        """Values of its weight."""
        return self.kernel**2 * self.inputs * self.outputs

    def sides(self, sides: tuple[int, ...]) -> tuple[int, ...]:
        """Height and width of its outputs."""
        lost = self.kernel - 1 - 2 * self.padding
        return tuple(math.ceil((side - lost) / self.stride) for side in sides)

    def layer(self, *, bias: bool = True) -> nn.Conv2d:
        """The layer itself."""
        from torch import nn

        return nn.Conv2d(
            self.inputs,
            self.outputs,
            self.kernel,
            self.stride,
            padding=self.padding,
            bias=bias,
        )
