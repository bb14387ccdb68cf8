"""Networks of two dense layers, which differ in width, activation and dropout alone."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar

from gleak.models.base import Activation, FirstLayer
from gleak.models.precode import PrecodeNetwork
from gleak.spec import knob

if TYPE_CHECKING:
    from torch import nn


class Perceptron(PrecodeNetwork):
    """Base of the dense networks: flatten, dense layer, activation, dense layer.

    With dropout a client's gradients depend on masks that attackers do not know; they match them
    with a network that drops nothing, which keeps the search from converging (CPL section 3.2).
    """

    first_layer: ClassVar[FirstLayer] = "dense"
    hidden_dense: ClassVar[bool | None] = True

    hidden: int
    activation: Activation
    dropout: float = knob(
        0.0,
        "share of the hidden values a client drops; attackers drop none",
        source="CPL section 3.2",
        ge=0,
        lt=1,
    )

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """See `ModelSpec.build`."""
        from torch import nn

        from gleak.models.activations import activation
        from gleak.models.dropout import dropout_layers
        from gleak.models.variational import variational_layers

        first, last = self.dense_layers(shape, classes)
        return nn.Sequential(
            nn.Flatten(),
            nn.Linear(*first),
            activation(self.activation),
            *dropout_layers(self.dropout),
            *variational_layers(self, self.hidden),
            nn.Linear(*last),
        )

    def dense_layers(self, shape: tuple[int, ...], classes: int) -> list[tuple[int, int]]:
        """See `PrecodeNetwork.dense_layers`."""
        return [(math.prod(shape), self.hidden), (self.hidden, classes)]

    def first_dense_neurons(self, classes: int | None) -> int | None:
        """See `ModelSpec.first_dense_neurons`."""
        return self.hidden

    def multiply_adds(self, shape: tuple[int, ...], classes: int) -> int:
        """See `ModelSpec.multiply_adds`."""
        return self.dense_multiply_adds(shape, classes)

    def parameters(self, shape: tuple[int, ...], classes: int) -> int:
        """See `ModelSpec.parameters`."""
        return self.dense_parameters(shape, classes)
