"""Residual networks for ImageNet, which differ in their blocks alone (He et al. 2016, Table 1)."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar

from typing_extensions import override

from gleak.core.spec import parameter
from gleak.models.convolution import Convolution
from gleak.models.residual import Block, ResidualNetwork

if TYPE_CHECKING:
    from torch import nn


class ImageNetResidual(ResidualNetwork):
    """Base of torchvision's residual networks: max-pooling behind the stem, four stages of blocks.

    Each stage is twice as wide as the one before; all but the first begin with stride 2.
    Parameters have torchvision's names. ``depths`` are the numbers of blocks.
    """

    smallest_side: ClassVar[int] = 32
    depths: ClassVar[tuple[int, ...]]

    width: int = parameter(64, "channels of the stem and the first stage", source="He et al.", ge=1)

    @abstractmethod
    def block(self, inputs: int, width: int, stride: int) -> Block:
        """A block of a stage of this width."""

    @override
    def stem(self, channels: int) -> Convolution:
        return Convolution(channels, self.width, kernel=7, stride=2)

    def pooled(self, sides: tuple[int, ...]) -> tuple[int, ...]:
        """Height and width behind max-pooling of 3 x 3 positions, with stride 2."""
        return tuple((side + 1) // 2 for side in sides)

    def stages(self) -> list[list[Block]]:
        """Each stage's blocks."""
        stages: list[list[Block]] = []
        before = self.width
        for number, depth in enumerate(self.depths):
            width = self.width * 2**number
            first = self.block(before, width, stride=2 if stages else 1)
            before = first.body[-1].outputs
            stages.append([first] + [self.block(before, width, stride=1)] * (depth - 1))
        return stages

    @override
    def blocks(self) -> list[Block]:
        return [block for stage in self.stages() for block in stage]

    @override
    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        from gleak.models.resnet_layers import resnet_layers

        return resnet_layers(self, self.stem(shape[0]), classes)
