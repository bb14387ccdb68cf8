"""Residual networks (He et al. 2016).

This module describes the layers without building them, to estimate costs without torch. The layers
themselves are built by `gleak.models.resnet_layers`.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from typing_extensions import override

from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.data.base import Modality
from gleak.models.base import Activation, Norm, Normalised, PrecodeNetwork, check_colours
from gleak.models.convolution import Convolution

if TYPE_CHECKING:
    from torch import nn


WIDENING = 4


@dataclass(frozen=True)
class Block:
    """Convolutions beside a shortcut; the two are added up (He et al., equations 1 and 2)."""

    body: tuple[Convolution, ...]

    @property
    def shortcut(self) -> Convolution | None:
        """The 1 x 1 convolution where the body changes the shape; None: inputs as they are."""
        inputs, outputs = self.body[0].inputs, self.body[-1].outputs
        stride = math.prod(convolution.stride for convolution in self.body)
        if inputs == outputs and stride == 1:
            return None
        return Convolution(inputs, outputs, kernel=1, stride=stride)


def basic_block(inputs: int, outputs: int, stride: int) -> Block:
    """Two 3 x 3 convolutions, the first with the stride."""
    return Block((Convolution(inputs, outputs, stride=stride), Convolution(outputs, outputs)))


def bottleneck(inputs: int, width: int, stride: int) -> Block:
    """A 3 x 3 convolution, with the stride, between one to fewer channels and one to four times."""
    outputs = WIDENING * width
    return Block(
        (
            Convolution(inputs, width, kernel=1),
            Convolution(width, width, stride=stride),
            Convolution(width, outputs, kernel=1),
        )
    )


class ResidualNetwork(PrecodeNetwork):
    """Base of the residual networks: a convolution, blocks, global average, dense layer."""

    activation: Activation
    norm: Norm
    normalise: Normalised

    def check(self, modality: Modality, shape: tuple[int, ...]) -> None:
        """Refuse channels that the means of colours are not of, too; see `ModelSpec.check`."""
        super().check(modality, shape)
        check_colours(self, self.normalise, shape)

    @abstractmethod
    def stem(self, channels: int) -> Convolution:
        """The first convolution, on images of so many channels."""

    @abstractmethod
    def blocks(self) -> list[Block]:
        """All blocks, in their order."""

    def pooled(self, sides: tuple[int, ...]) -> tuple[int, ...]:
        """Height and width of the first block's inputs: the stem's outputs as they are."""
        return sides

    @override
    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        from gleak.models.resnet_layers import residual_layers

        return residual_layers(self, self.stem(shape[0]), classes)

    @override
    def multiply_adds(self, shape: tuple[int, ...], classes: int) -> int:
        """Normalisation and pooling are not counted."""
        convolutions = sum(
            convolution.weights * math.prod(sides)
            for convolution, sides in self._convolutions(shape)
        )
        return convolutions + self.dense_multiply_adds(shape, classes)

    @override
    def parameters(self, shape: tuple[int, ...], classes: int) -> int:
        """A convolution has biases or is followed by a batch norm."""
        per_output = 2 if self.norm == "batch" else 1
        convolutions = sum(
            convolution.weights + per_output * convolution.outputs
            for convolution, _ in self._convolutions(shape)
        )
        return convolutions + self.dense_parameters(shape, classes)

    @property
    def features(self) -> int:
        """Channels behind the last block, which the dense layer takes."""
        return self.blocks()[-1].body[-1].outputs

    @override
    def dense_layers(self, shape: tuple[int, ...], classes: int) -> list[tuple[int, int]]:
        return [(self.features, classes)]

    def _convolutions(
        self, shape: tuple[int, ...]
    ) -> Iterator[tuple[Convolution, tuple[int, ...]]]:
        """Every convolution, with height and width of its outputs."""
        stem = self.stem(shape[0])
        sides = stem.sides(shape[1:])
        yield stem, sides
        sides = self.pooled(sides)
        for block in self.blocks():
            if block.shortcut is not None:
                yield block.shortcut, block.shortcut.sides(sides)
            for convolution in block.body:
                sides = convolution.sides(sides)
                yield convolution, sides


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


@register("resnet18")
class ResNet18(ImageNetResidual):
    """ImageNet ResNet of 18 layers, without batch norm: four stages of two blocks, as in ROG.

    ROG leaves batch norm out since federated learning suffers from it; all convolutions have biases
    instead. With norm=batch and normalise=imagenet it is torchvision's network, so `pretrained`
    parameters fit; batch norm is then in evaluation mode when clients compute gradients.
    """

    source = "He et al. 2016, Table 1; ROG section 4.2"
    depths: ClassVar[tuple[int, ...]] = (2, 2, 2, 2)

    activation: Activation = parameter("relu", "after each convolution and sum", source="He et al.")
    norm: Norm = parameter(
        "none",
        "none: convolutions have biases instead of a batch norm behind them",
        source="ROG section 4.2; batch in He et al.",
    )
    normalise: Normalised = parameter(
        "none",
        "how images are before the first convolution",
        source="ours: ROG names none; imagenet in torchvision",
    )

    @override
    def block(self, inputs: int, width: int, stride: int) -> Block:
        return basic_block(inputs, width, stride)


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


@register("resnet50")
class ResNet50(ImageNetResidual):
    """ImageNet ResNet of 50 layers: 3, 4, 6 and 3 bottlenecks of 64, 128, 256 and 512 channels.

    It is torchvision's network, so `pretrained` parameters fit: the second convolution of a
    bottleneck has its stride, not the first, and the first layer normalises by ImageNet's means
    and deviations. Batch norm is in evaluation mode when clients compute gradients: the running
    statistics are broadcast with the parameters.
    """

    source = "He et al. 2016, Table 1; torchvision; AGIC section V"
    depths: ClassVar[tuple[int, ...]] = (3, 4, 6, 3)

    activation: Activation = parameter("relu", "after each convolution and sum", source="He et al.")
    norm: Norm = parameter("batch", "none: convolutions have biases instead", source="He et al.")
    normalise: Normalised = parameter(
        "imagenet", "how images are before the first convolution", source="torchvision"
    )

    @override
    def block(self, inputs: int, width: int, stride: int) -> Block:
        return bottleneck(inputs, width, stride)
