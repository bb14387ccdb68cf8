"""BigGAN-deep at 128 x 128 pixels, with pretrained weights."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from gleak.core.errors import IncompatibleError
from gleak.core.registry import register
from gleak.core.spec import FILE_NAME, parameter
from gleak.knowledge.base import (
    GenerativeSpec,
    LayerShape,
    PretrainedSpec,
    dense_shape,
)

if TYPE_CHECKING:
    from gleak.knowledge.networks import BigGANDeep

IMAGE = (3, 128, 128)
FIRST_SIDE = 4
CODE = 128
CONDITION = 2 * CODE
"""Length of a code concatenated with a class embedding."""
MULTIPLIERS = (16, 16, 8, 4, 2, 1)
"""Channels at each resolution, in multiples of the width."""
ATTENTION_SIDE, ATTENTION_BLOCK = 64, 8
"""Side of the features on which attention works, and number of the block before which it does."""
ATTENTION_MULTIPLIER = MULTIPLIERS[ATTENTION_BLOCK // 2]
ATTENTION_REDUCTION = 8


def all_blocks(width: int) -> list[list[LayerShape]]:
    """Return the shapes of the convolutions of all blocks.

    At each resolution one block keeps it and one doubles it, before its second convolution.
    """
    blocks, side = [], FIRST_SIDE
    for wide, thin in pairwise(width * multiplier for multiplier in MULTIPLIERS):
        for outputs, larger in ((wide, side), (thin, 2 * side)):
            inner, sides = wide // 4, (larger, larger)
            blocks.append(
                [
                    LayerShape(wide, inner, (side, side), kernel=1),
                    LayerShape(inner, inner, sides),
                    LayerShape(inner, inner, sides),
                    LayerShape(inner, outputs, sides, kernel=1),
                ]
            )
        side *= 2
    return blocks


def attention(channels: int) -> list[LayerShape]:
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
        if shape != IMAGE:
            raise IncompatibleError(
                f"knowledge {self} generates images of shape {IMAGE}, not {shape}"
            )

    def build(self, shape: tuple[int, ...], classes: int) -> BigGANDeep:
        from gleak.knowledge.networks import BigGANDeep

        return BigGANDeep(
            all_blocks(self.width),
            {ATTENTION_BLOCK: attention(self.width * ATTENTION_MULTIPLIER)},
            CODE,
            classes,
            self.truncation,
        )

    def multiply_adds(self, shape: tuple[int, ...], classes: int) -> int:
        """Return the multiply-adds, without the matrix products of the attention."""
        layers = [*self._with_bias(), *self._without_bias(classes)]
        return sum(layer.multiply_adds for layer in layers)

    def parameters(self, shape: tuple[int, ...], classes: int) -> int:
        biased, bare = self._with_bias(), self._without_bias(classes)
        biases = sum(layer.outputs for layer in biased)
        last_normalisation, gain = 2 * self.width, 1
        return sum(layer.weights for layer in [*biased, *bare]) + biases + last_normalisation + gain

    def _with_bias(self) -> list[LayerShape]:
        first = dense_shape(CONDITION, FIRST_SIDE**2 * MULTIPLIERS[0] * self.width)
        inner = [layer for block in all_blocks(self.width) for layer in block]
        return [first, *inner, LayerShape(self.width, self.width, (IMAGE[1], IMAGE[2]))]

    def _without_bias(self, classes: int) -> list[LayerShape]:
        scales = [
            dense_shape(CONDITION, layer.inputs)
            for block in all_blocks(self.width)
            for layer in block
            for _ in ("scale", "offset")
        ]
        attending = attention(self.width * ATTENTION_MULTIPLIER)
        return [dense_shape(classes, CODE), *scales, *attending]
