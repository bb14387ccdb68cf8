"""Residual networks, which differ in their blocks alone (He et al. 2016).

What stands here describes the layers without building them, for estimates; the layers themselves
are made by `gleak.models.blocks` and `gleak.models.resnet_layers`.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from typing_extensions import override

from gleak.data.base import Modality
from gleak.models.base import Activation, Norm, Normalised, check_colours
from gleak.models.convolution import Convolution
from gleak.models.precode import PrecodeNetwork

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
        from gleak.models.blocks import residual_layers

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
