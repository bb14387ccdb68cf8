"""LeNets: DLG's, LeCun's LeNet-5, and ROG's for larger images."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import ClassVar

from gleak.core.lazy import torch
from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.models.base import (
    Activation,
    Convolution,
    Placed,
    PrecodeNetwork,
    activation_layer,
    dropout_layers,
)
from gleak.models.staged import Pooling, StagedNetwork

KERNEL = 5


@register("lenet")
class LeNet(PrecodeNetwork):
    """DLG's LeNet: three 5 x 5 convolutions of equal width, strides 2, 2 and 1, and a dense layer.

    Its resolution is that of the data (field ``size`` of most datasets). With dropout, a client's
    gradients depend on masks that attackers do not know. Attackers match them with a network
    without dropout, which prevents the search from converging (CPL section 3.2).
    """

    source = "Zhu et al., Deep Leakage from Gradients (2019); CPL section 4.1"
    smallest_side: ClassVar[int] = 4

    activation: Activation = parameter("sigmoid", "after each convolution", source="DLG")
    width: int = parameter(12, "channels of each convolution", source="DLG", ge=1)
    dropout: float = parameter(
        0.0,
        "dropout probability of the dense layer's inputs, for clients only",
        source="CPL section 3.2",
        ge=0,
        lt=1,
    )

    def build(self, shape: tuple[int, ...], classes: int) -> torch.nn.Module:
        layers: list[torch.nn.Module] = []
        for convolution, _ in self.placed_convolutions(shape):
            layers += [convolution.layer(), activation_layer(self.activation)]
        ((features, _),) = self.dense_layers(shape, classes)
        layers += [torch.nn.Flatten(), *dropout_layers(self.dropout)]
        layers += [*self.variational_layers(features), torch.nn.Linear(features, classes)]
        return torch.nn.Sequential(*layers)

    def dense_layers(self, shape: tuple[int, ...], classes: int) -> list[tuple[int, int]]:
        *_, (_, sides) = self.placed_convolutions(shape)
        return [(self.width * math.prod(sides), classes)]

    def placed_convolutions(self, shape: tuple[int, ...]) -> Iterator[Placed]:
        channels, sides = shape[0], shape[1:]
        for stride in (2, 2, 1):
            convolution = Convolution(channels, self.width, KERNEL, stride)
            channels, sides = self.width, convolution.sides(sides)
            yield convolution, sides


@register("lenet5")
class LeNet5(StagedNetwork):
    """LeNet-5 as attacked by MKOR: two 5 x 5 convolutions, average pooling and three dense layers.

    Only the first convolution is padded, so that images of 28 x 28 give the first dense layer 400
    inputs; the same holds for downsampling=stride, MKOR's modified LeNet. The network is simpler
    than that of 1998: the second convolution sees all channels, pooling has no parameters, and the
    last layer is dense. DLG's LeNet is `lenet`.
    """

    source = "LeCun et al. 1998, section II; MKOR section 4"
    pooling: ClassVar[Pooling] = "average"

    activation: Activation = parameter(
        "sigmoid",
        "after each layer but the last",
        source="MKOR section 3.6; a scaled tanh in LeCun et al. 1998",
    )

    @property
    def hidden_layers(self) -> list[int]:
        return [120, 84]

    def convolutions(self, channels: int) -> list[list[Convolution]]:
        return [[Convolution(channels, 6, KERNEL)], [Convolution(6, 16, KERNEL, padded=False)]]


@register("lenet128")
class LeNet128(StagedNetwork):
    """ROG's LeNet for 128 x 128: two 5 x 5 convolutions with max pooling and two dense layers.

    Convolutions are padded, so that 32 x 32 positions of 128 x 128 reach the dense layers, and the
    first of these has 33.6 million weights. Dense layers have no biases, and nothing is normalised.
    The second convolution is twice as wide as the first. DLG's LeNet is `lenet`, LeCun's `lenet5`.
    """

    source = "ROG section 4.2 and the authors' code; LeCun et al. 1998"
    dense_bias: ClassVar[bool] = False

    activation: Activation = parameter(
        "relu", "after each layer but the last", source="ROG's network"
    )
    width: int = parameter(32, "channels of the first convolution", source="ROG's network", ge=1)
    hidden: int = parameter(512, "neurons of the first dense layer", source="ROG's network", ge=1)

    @property
    def hidden_layers(self) -> list[int]:
        return [self.hidden]

    def convolutions(self, channels: int) -> list[list[Convolution]]:
        return [
            [Convolution(channels, self.width, KERNEL)],
            [Convolution(self.width, 2 * self.width, KERNEL)],
        ]
