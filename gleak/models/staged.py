"""Networks of convolution stages, each of which halves the image, followed by dense layers."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from itertools import count, pairwise
from typing import ClassVar, Literal

from gleak.core.lazy import torch
from gleak.core.spec import parameter
from gleak.models.base import (
    Activation,
    Convolution,
    Norm,
    Placed,
    PrecodeNetwork,
    activation_layer,
)

Pooling = Literal["max", "average"]
Downsampling = Literal["pooling", "stride"]


class StagedNetwork(PrecodeNetwork):
    """Base class of networks that halve the image after each stage of convolutions.

    ``pooling`` is the kind of 2 x 2 pooling. ``pooled`` is the side to which features are averaged
    before the dense layers; None: no averaging.
    """

    hidden_dense: ClassVar[bool | None] = True
    pooling: ClassVar[Pooling] = "max"
    pooled: ClassVar[int | None] = None

    activation: Activation
    dropout: float = parameter(
        0.0,
        "dropout probability of the hidden dense values, for clients only",
        source="ours: not stated in CPA and MKOR; 0.5 in VGG section 3.1",
        ge=0,
        lt=1,
    )
    downsampling: Downsampling = parameter(
        "pooling",
        "stride: the last convolution of each stage has stride 2, without pooling",
        source="LeCun et al. 1998; VGG section 2.1; stride: MKOR section 4, modified networks",
    )

    @abstractmethod
    def convolutions(self, channels: int) -> list[list[Convolution]]:
        """Return the convolutions of each stage if it is followed by pooling."""

    @property
    @abstractmethod
    def hidden_layers(self) -> list[int]:
        """Number of neurons of each dense layer but the last."""

    @property
    def smallest_side(self) -> int:
        return next(side for side in count(1) if min(self._halved((1, side, side))) > 0)

    def stages(self, channels: int) -> list[list[Convolution]]:
        """Return the convolutions of each stage as built, with strides if asked."""
        stages = self.convolutions(channels)
        if self.downsampling == "pooling":
            return stages
        return [[*others, replace(last, stride=2)] for *others, last in stages]

    def dense_layers(self, shape: tuple[int, ...], classes: int) -> list[tuple[int, int]]:
        sides = [self.pooled or side for side in self._halved(shape)]
        features = self.stages(shape[0])[-1][-1].outputs * math.prod(sides)
        return list(pairwise([features, *self.hidden_layers, classes]))

    def build(self, shape: tuple[int, ...], classes: int) -> torch.nn.Module:
        return torch.nn.Sequential(
            *self.convolutional_layers(shape[0]),
            torch.nn.Flatten(),
            *self.classifier_layers(shape, classes),
        )

    def convolutional_layers(self, channels: int, norm: Norm = "none") -> list[torch.nn.Module]:
        """Build the convolutions, their norms and activations, and the pooling after each stage."""
        pooling = {"max": torch.nn.MaxPool2d, "average": torch.nn.AvgPool2d}[self.pooling]
        layers: list[torch.nn.Module] = []
        for stage in self.stages(channels):
            for convolution in stage:
                layers.append(convolution.layer())
                if norm == "batch":
                    layers.append(torch.nn.BatchNorm2d(convolution.outputs))
                layers.append(activation_layer(self.activation))
            if self.downsampling == "pooling":
                layers.append(pooling(2))
        return layers

    def classifier_layers(self, shape: tuple[int, ...], classes: int) -> list[torch.nn.Module]:
        """Build the dense layers, and the variational block before the last.

        All but the last are followed by an activation and dropout: with probability 0, too, as
        torchvision's parameter names count these layers.
        """
        *hidden, last = self.dense_layers(shape, classes)
        layers: list[torch.nn.Module] = []
        for inputs, outputs in hidden:
            layers.append(torch.nn.Linear(inputs, outputs, bias=self.dense_bias))
            layers += [activation_layer(self.activation), torch.nn.Dropout(self.dropout)]
        layers += self.variational_layers(last[0])
        return [*layers, torch.nn.Linear(*last, bias=self.dense_bias)]

    def first_dense_neurons(self, classes: int | None) -> int | None:
        return self.hidden_layers[0]

    def placed_convolutions(self, shape: tuple[int, ...]) -> Iterator[Placed]:
        sides = shape[1:]
        for stage in self.stages(shape[0]):
            for convolution in stage:
                sides = convolution.sides(sides)
                yield convolution, sides
            sides = self._after_pooling(sides)

    def _halved(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return height and width after the last stage."""
        *_, (_, sides) = self.placed_convolutions(shape)
        return self._after_pooling(sides)

    def _after_pooling(self, sides: tuple[int, ...]) -> tuple[int, ...]:
        return sides if self.downsampling == "stride" else tuple(side // 2 for side in sides)
