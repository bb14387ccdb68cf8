"""Networks of two dense layers."""

from __future__ import annotations

import math
from typing import ClassVar

from gleak.core.lazy import torch
from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.data.base import Modality
from gleak.models.base import (
    Activation,
    FirstLayer,
    Normalised,
    PrecodeNetwork,
    activation_layer,
    dropout_layers,
    normalisation_layers,
)


class Perceptron(PrecodeNetwork):
    """Base class of networks that flatten their inputs and apply two dense layers.

    With dropout, a client's gradients depend on masks that attackers do not know (see `lenet`).
    """

    first_layer: ClassVar[FirstLayer] = "dense"
    hidden_dense: ClassVar[bool | None] = True

    hidden: int
    activation: Activation
    dropout: float = parameter(
        0.0,
        "dropout probability of the hidden values, for clients only",
        source="CPL section 3.2",
        ge=0,
        lt=1,
    )
    normalise: Normalised = parameter(
        "none",
        "normalisation of images before the first layer",
        source="ours; by the statistics of the dataset in CPA's code",
    )

    def build(self, shape: tuple[int, ...], classes: int) -> torch.nn.Module:
        first, last = self.dense_layers(shape, classes)
        return torch.nn.Sequential(
            *normalisation_layers(self.normalise),
            torch.nn.Flatten(),
            torch.nn.Linear(*first),
            activation_layer(self.activation),
            *dropout_layers(self.dropout),
            *self.variational_layers(self.hidden),
            torch.nn.Linear(*last),
        )

    def dense_layers(self, shape: tuple[int, ...], classes: int) -> list[tuple[int, int]]:
        return [(math.prod(shape), self.hidden), (self.hidden, classes)]

    def first_dense_neurons(self, classes: int | None) -> int | None:
        return self.hidden


@register("fc2")
class FC2(Perceptron):
    """FC-2: a dense layer of 256 neurons, ReLU, and a dense layer, on flattened images."""

    source = "CPA section V-A"

    hidden: int = parameter(256, "neurons of the first layer", source="CPA section V-A", ge=1)
    activation: Activation = parameter("relu", "between the layers", source="CPA section V-A")


@register("mlp")
class MLP(Perceptron):
    """Multilayer perceptron with one hidden layer, on tables or flattened images."""

    source = "CPL section 4.1"
    modalities: ClassVar[frozenset[Modality]] = frozenset({"image", "tabular"})

    hidden: int = parameter(
        64, "neurons of the hidden layer", source="ours: not stated in CPL", ge=1
    )
    activation: Activation = parameter("sigmoid", "between the layers", source="CPL section 3.2")
