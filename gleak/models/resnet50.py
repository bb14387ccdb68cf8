"""The residual network of 50 layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from gleak.models.base import Activation, Norm, Normalised
from gleak.models.convolution import Convolution
from gleak.models.residual import Block, ResidualNetwork, bottleneck
from gleak.registry import register
from gleak.spec import knob

if TYPE_CHECKING:
    from torch import nn

STEM = 64
WIDTHS_AND_DEPTHS = ((64, 3), (128, 4), (256, 6), (512, 3))


@register("resnet50")
class ResNet50(ResidualNetwork):
    """ImageNet ResNet of 50 layers: 3, 4, 6 and 3 bottlenecks of 64, 128, 256 and 512 channels.

    It is torchvision's network, so `pretrained` parameters fit: the second convolution of a
    bottleneck has its stride, not the first, and the first layer normalises by ImageNet's means
    and deviations. Batch norm is in evaluation mode when clients compute gradients: the running
    statistics are broadcast with the parameters.
    """

    source = "He et al. 2016, Table 1; torchvision; AGIC section V"
    smallest_side: ClassVar[int] = 32

    activation: Activation = knob("relu", "after each convolution and sum", source="He et al.")
    norm: Norm = knob("batch", "none: convolutions have biases instead", source="He et al.")
    normalise: Normalised = knob(
        "imagenet", "how images are before the first convolution", source="torchvision"
    )

    def stem(self, channels: int) -> Convolution:
        """See `ResidualNetwork.stem`."""
        return Convolution(channels, STEM, kernel=7, stride=2)

    def pooled(self, sides: tuple[int, ...]) -> tuple[int, ...]:
        """Height and width behind max-pooling of 3 x 3 positions, with stride 2."""
        return tuple((side + 1) // 2 for side in sides)

    def stages(self) -> list[list[Block]]:
        """Each stage's blocks; all but the first stage begin with stride 2."""
        stages: list[list[Block]] = []
        before = STEM
        for width, depth in WIDTHS_AND_DEPTHS:
            first = bottleneck(before, width, stride=2 if stages else 1)
            before = first.body[-1].outputs
            stages.append([first] + [bottleneck(before, width, stride=1)] * (depth - 1))
        return stages

    def blocks(self) -> list[Block]:
        """See `ResidualNetwork.blocks`."""
        return [block for stage in self.stages() for block in stage]

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """See `ModelSpec.build`."""
        from gleak.models.resnet_layers import resnet_layers

        return resnet_layers(self, self.stem(shape[0]), classes)
