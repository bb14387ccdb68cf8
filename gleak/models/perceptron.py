"""Networks of two dense layers, which differ in width, activation and dropout alone."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar

from typing_extensions import override

from gleak.core.spec import parameter
from gleak.models.base import Activation, FirstLayer
from gleak.models.precode import PrecodeNetwork

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
    dropout: float = parameter(
        0.0,
        "share of the hidden values a client drops; attackers drop none",
        source="CPL section 3.2",
        ge=0,
        lt=1,
    )

    @override
    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
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

    @override
    def dense_layers(self, shape: tuple[int, ...], classes: int) -> list[tuple[int, int]]:
        return [(math.prod(shape), self.hidden), (self.hidden, classes)]

    @override
    def first_dense_neurons(self, classes: int | None) -> int | None:
        return self.hidden

    @override
    def multiply_adds(self, shape: tuple[int, ...], classes: int) -> int:
        return self.dense_multiply_adds(shape, classes)

    @override
    def parameters(self, shape: tuple[int, ...], classes: int) -> int:
        return self.dense_parameters(shape, classes)
