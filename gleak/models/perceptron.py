"""Networks of two dense layers, which differ in width and activation alone."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from gleak.models.base import Activation, ModelSpec

if TYPE_CHECKING:
    from torch import nn


class Perceptron(ModelSpec):
    """Base of the dense networks: flatten, dense layer, activation, dense layer."""

    hidden: int
    activation: Activation

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """See `ModelSpec.build`."""
        from torch import nn

        from gleak.models.activations import activation

        return nn.Sequential(
            nn.Flatten(),
            nn.Linear(math.prod(shape), self.hidden),
            activation(self.activation),
            nn.Linear(self.hidden, classes),
        )

    def multiply_adds(self, shape: tuple[int, ...], classes: int) -> int:
        """See `ModelSpec.multiply_adds`."""
        return self.hidden * (math.prod(shape) + classes)

    def parameters(self, shape: tuple[int, ...], classes: int) -> int:
        """See `ModelSpec.parameters`."""
        return self.multiply_adds(shape, classes) + self.hidden + classes
