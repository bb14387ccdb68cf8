"""LeCun's convolutional network for handwritten digits."""

from __future__ import annotations

from typing import ClassVar

from typing_extensions import override

from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.models.base import Activation
from gleak.models.convolution import Convolution
from gleak.models.staged import Pooling, StagedNetwork

KERNEL = 5
CHANNELS = (6, 16)
HIDDEN = (120, 84)


@register("lenet5")
class LeNet5(StagedNetwork):
    """LeNet-5 as attacked by MKOR: two 5 x 5 convolutions with average pooling, three dense layers.

    Images of 28 x 28 are padded at the first convolution alone, so the first dense layer takes 400
    values; with downsampling=stride, MKOR's modified LeNet, as many. It is simpler than in 1998:
    the second convolution sees all channels, pooling has no parameters, the last layer is dense.
    DLG's LeNet is `lenet`.
    """

    source = "LeCun et al. 1998, section II; MKOR section 4"
    pooling: ClassVar[Pooling] = "average"

    activation: Activation = parameter(
        "sigmoid",
        "after each layer but the last",
        source="MKOR section 3.6; a scaled tanh in LeCun et al. 1998",
    )

    @property
    @override
    def hidden_layers(self) -> list[int]:
        return list(HIDDEN)

    @override
    def convolutions(self, channels: int) -> list[list[Convolution]]:
        first, second = CHANNELS
        return [
            [Convolution(channels, first, KERNEL)],
            [Convolution(first, second, KERNEL, padded=False)],
        ]
