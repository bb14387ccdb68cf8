"""The LeNet of ROG for larger images."""

from __future__ import annotations

from gleak.models.base import Activation
from gleak.models.convolution import Convolution
from gleak.models.staged import StagedNetwork
from gleak.registry import register
from gleak.spec import knob

KERNEL = 5


@register("lenet128")
class LeNet128(StagedNetwork):
    """ROG's LeNet for 128 x 128: two 5 x 5 convolutions with max-pooling, two dense layers.

    Nothing is padded, so of 128 x 128 positions 29 x 29 reach the dense layers, and the first of
    these has 27.6 million weights; nor is anything normalised. The second convolution is twice as
    wide as the first. DLG's LeNet is `lenet`, LeCun's `lenet5`.
    """

    source = "ROG section 4.2; LeCun et al. 1998"

    activation: Activation = knob("relu", "after each layer but the last", source="ROG's network")
    width: int = knob(32, "channels of the first convolution", source="ROG's network", ge=1)
    hidden: int = knob(512, "neurons of the first dense layer", source="ROG's network", ge=1)

    @property
    def hidden_layers(self) -> list[int]:
        """See `StagedNetwork.hidden_layers`."""
        return [self.hidden]

    def convolutions(self, channels: int) -> list[list[Convolution]]:
        """See `StagedNetwork.convolutions`."""
        return [
            [Convolution(channels, self.width, KERNEL, padded=False)],
            [Convolution(self.width, 2 * self.width, KERNEL, padded=False)],
        ]
