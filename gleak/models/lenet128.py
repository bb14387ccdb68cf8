"""The LeNet of ROG for larger images."""

from __future__ import annotations

from typing_extensions import override

from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.models.base import Activation
from gleak.models.convolution import Convolution
from gleak.models.staged import StagedNetwork

KERNEL = 5


@register("lenet128")
class LeNet128(StagedNetwork):
    """ROG's LeNet for 128 x 128: two 5 x 5 convolutions with max-pooling, two dense layers.

    Nothing is padded, so of 128 x 128 positions 29 x 29 reach the dense layers, and the first of
    these has 27.6 million weights; nor is anything normalised. The second convolution is twice as
    wide as the first. DLG's LeNet is `lenet`, LeCun's `lenet5`.
    """

    source = "ROG section 4.2; LeCun et al. 1998"

    activation: Activation = parameter(
        "relu", "after each layer but the last", source="ROG's network"
    )
    width: int = parameter(32, "channels of the first convolution", source="ROG's network", ge=1)
    hidden: int = parameter(512, "neurons of the first dense layer", source="ROG's network", ge=1)

    @property
    @override
    def hidden_layers(self) -> list[int]:
        return [self.hidden]

    @override
    def convolutions(self, channels: int) -> list[list[Convolution]]:
        return [
            [Convolution(channels, self.width, KERNEL, padded=False)],
            [Convolution(self.width, 2 * self.width, KERNEL, padded=False)],
        ]
