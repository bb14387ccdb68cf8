"""BigGAN-deep at 128 x 128 pixels, with pretrained weights."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from typing_extensions import override

from gleak.core.errors import IncompatibleError
from gleak.core.registry import register
from gleak.core.spec import FILE_NAME, parameter
from gleak.knowledge.base import GenerativeSpec, PretrainedSpec
from gleak.knowledge.layer_shapes import LayerShape, dense_shape, total_multiply_adds

if TYPE_CHECKING:
    from gleak.knowledge.biggan_network import BigGANDeep

IMAGE = (3, 128, 128)
FIRST_SIDE = 4
CODE = 128
CONDITION = 2 * CODE
"""Length of a code concatenated with a class embedding."""
MULTIPLIERS = (16, 16, 8, 4, 2, 1)
"""Channels at each resolution, in multiples of the width."""
REDUCTION = 4
ATTENTION_SIDE = 64
ATTENTION_REDUCTION = 8


class Block(NamedTuple):
    """Sizes of one block.

    Args:
        inputs: number of input channels.
        outputs: number of output channels.
        side: of the input features.
        enlarges: whether it doubles height and width.
    """

    inputs: int
    outputs: int
    side: int
    enlarges: bool

    @property
    def inner(self) -> int:
        """Number of channels between the first and the last convolution."""
        return self.inputs // REDUCTION

    @property
    def convolutions(self) -> list[LayerShape]:
        """Shapes of the convolutions in order; features are enlarged before the second."""
        before, after = self.side, self.side * (1 + self.enlarges)
        return [
            LayerShape(self.inputs, self.inner, (before, before), kernel=1),
            LayerShape(self.inner, self.inner, (after, after)),
            LayerShape(self.inner, self.inner, (after, after)),
            LayerShape(self.inner, self.outputs, (after, after), kernel=1),
        ]

    @property
    def scales(self) -> list[LayerShape]:
        """Shapes of dense layers from the condition to scale and offset of each normalisation."""
        return [dense_shape(CONDITION, each.inputs) for each in self.convolutions for _ in range(2)]


def blocks(width: int) -> Iterator[Block]:
    """Iterate over the blocks: at each resolution one that keeps it and one that doubles it."""
    side = FIRST_SIDE
    for wide, thin in pairwise(width * multiplier for multiplier in MULTIPLIERS):
        yield Block(wide, wide, side, enlarges=False)
        yield Block(wide, thin, side, enlarges=True)
        side *= 2


def attention(channels: int) -> list[LayerShape]:
    """Return the shapes of the self-attention's queries, keys, values and output."""
    side = (ATTENTION_SIDE, ATTENTION_SIDE)
    few, half = channels // ATTENTION_REDUCTION, channels // 2
    pairs = [(channels, few), (channels, few), (channels, half), (half, channels)]
    return [LayerShape(*pair, side, kernel=1) for pair in pairs]


@register("biggan")
class BigGAN(GenerativeSpec, PretrainedSpec):
    """Generator of BigGAN-deep, with the tensor names of pytorch-pretrained-BigGAN's files.

    Codes of 128 values are multiplied by ``truncation``, and activations are normalised by the
    statistics that are stored for the nearest truncation. Codes beyond two standard deviations are
    not resampled. Images have 128 x 128 pixels; the number of classes is the dataset's: 1,000 for
    the published file.
    """

    source = "Brock et al. 2019; ROG section 6"

    weights: str = parameter(
        "biggan-deep-128-pytorch_model.bin",
        "name of the file",
        source="pytorch-pretrained-BigGAN",
        pattern=FILE_NAME,
    )
    truncation: float = parameter(
        0.4, "standard deviation of codes", source="pytorch-pretrained-BigGAN's example", gt=0, le=1
    )
    width: int = parameter(128, "channels before the last layer", source="Brock et al. 2019", ge=4)

    def check_shape(self, shape: tuple[int, ...]) -> None:
        """Check that images have the size of generated ones.

        Raises:
            IncompatibleError: they have another shape.
        """
        if shape != IMAGE:
            raise IncompatibleError(
                f"knowledge {self} generates images of shape {IMAGE}, not {shape}"
            )

    @override
    def build(self, shape: tuple[int, ...], classes: int) -> BigGANDeep:
        from gleak.knowledge.biggan_network import BigGANDeep

        return BigGANDeep(self.width, classes, self.truncation)

    @override
    def multiply_adds(self, shape: tuple[int, ...], classes: int) -> int:
        """Return the multiply-adds, without the matrix products of the attention."""
        return total_multiply_adds([*self._with_bias(), *self._without_bias(classes)])

    @override
    def parameters(self, shape: tuple[int, ...], classes: int) -> int:
        biased, bare = self._with_bias(), self._without_bias(classes)
        last_normalisation, gain = 2 * self.width, 1
        biases = sum(layer.outputs for layer in biased) + last_normalisation + gain
        return sum(layer.weights for layer in [*biased, *bare]) + biases

    def _with_bias(self) -> list[LayerShape]:
        first = dense_shape(CONDITION, FIRST_SIDE**2 * MULTIPLIERS[0] * self.width)
        inner = [layer for block in blocks(self.width) for layer in block.convolutions]
        return [first, *inner, LayerShape(self.width, self.width, (IMAGE[1], IMAGE[2]))]

    def _without_bias(self, classes: int) -> list[LayerShape]:
        scales = [layer for block in blocks(self.width) for layer in block.scales]
        (attended,) = {block.inputs for block in blocks(self.width) if block.side == ATTENTION_SIDE}
        return [dense_shape(classes, CODE), *scales, *attention(attended)]
