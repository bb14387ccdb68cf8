"""The residual network for small images."""

from __future__ import annotations

from typing import ClassVar

from typing_extensions import override

from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.models.base import Activation, Norm, Normalised
from gleak.models.convolution import Convolution
from gleak.models.residual import Block, ResidualNetwork, basic_block

STAGES = (16, 32, 64)
BLOCKS_OF_A_STAGE = 3


@register("resnet20")
class ResNet20(ResidualNetwork):
    """CIFAR ResNet of 20 layers: three stages of three blocks, 16, 32 and 64 channels.

    Batch norm is in evaluation mode when clients compute gradients: the running statistics are
    broadcast with the parameters. Shortcuts are 1 x 1 convolutions where the shape changes (He et
    al., option B). AGIC's ResNet20-4 has width=4; downsampling=false is DLG's change, which keeps
    all positions in all stages, at 16 times the cost in the last.
    """

    source = "He et al. 2016, section 4.2; AGIC"
    smallest_side: ClassVar[int] = 8

    activation: Activation = parameter("relu", "after each convolution and sum", source="He et al.")
    norm: Norm = parameter("batch", "none: convolutions have biases instead", source="He et al.")
    width: int = parameter(1, "multiplies all channels", source="He et al.; 4 in AGIC", ge=1)
    downsampling: bool = parameter(
        True, "stride 2 at the second and third stage; false: 1", source="He et al.; false in DLG"
    )

    normalise: Normalised = parameter(
        "none", "how images are before the first convolution", source="cifar10 in AGIC section V-A"
    )

    @override
    def stem(self, channels: int) -> Convolution:
        return Convolution(channels, self.width * STAGES[0])

    @override
    def blocks(self) -> list[Block]:
        blocks: list[Block] = []
        before = self.width * STAGES[0]
        for number, channels in enumerate(STAGES):
            after = self.width * channels
            stride = 2 if self.downsampling and number else 1
            blocks += [basic_block(before, after, stride)]
            blocks += [basic_block(after, after, 1)] * (BLOCKS_OF_A_STAGE - 1)
            before = after
        return blocks
