"""Autoencoders: a codec of images, and a class-conditional generator."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from typing_extensions import override

from gleak.core.errors import IncompatibleError
from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.knowledge.base import GenerativeSpec, TrainedSpec
from gleak.knowledge.layer_shapes import (
    LayerShape,
    Sides,
    channels_at_levels,
    dense_shape,
    full_pyramid,
    halved,
    pyramid,
    total_multiply_adds,
    total_parameters,
)

if TYPE_CHECKING:
    from gleak.knowledge.autoencoder_network import Autoencoder, Decoder
    from gleak.knowledge.train_knowledge import Trainer

CODE_CHANNELS = 8
WIDEST = 4
"""Largest number of channels, in multiples of the width."""


class CodecPlan(NamedTuple):
    """Layer sizes of a codec for images of one shape.

    Args:
        channels: of an image.
        sides: height and width of the images and after each halving; the last are the code's.
        widths: channels of the features at each of these.
        code: channels of the code.
    """

    channels: int
    sides: list[Sides]
    widths: list[int]
    code: int

    @property
    def layers(self) -> list[LayerShape]:
        """Shapes of all convolutions of `gleak.knowledge.autoencoder_network.Autoencoder`."""
        levels = list(zip(self.sides, self.widths, strict=True))
        steps = list(pairwise(levels))
        (first, narrow), (last, wide) = levels[0], levels[-1]
        return [
            LayerShape(self.channels, narrow, first),
            *(LayerShape(thin, wide, small) for (_, thin), (small, wide) in steps),
            *(LayerShape(wide, wide, small) for small, wide in levels[1:] for _ in range(4)),
            LayerShape(wide, self.code, last),
            LayerShape(self.code, wide, last),
            *(LayerShape(wide, thin, large) for (large, thin), (_, wide) in steps),
            LayerShape(narrow, self.channels, first),
        ]


@register("codec")
class Codec(TrainedSpec):
    """Convolutional autoencoder with codes of length ``size``, trained on the squared error.

    A code is a small image of at most 8 channels: 8 x 32 x 32 for 8192 values and images of 128 x
    128 pixels, 8 x 8 x 8 for 512. If ``size`` does not fill the last channel, the rest of it is
    zero. Before training the code is the downscaled image, so that few steps suffice.
    """

    source = "ROG section 4.2; architecture ours"

    losses: ClassVar[tuple[str, ...]] = ("mse",)

    size: int = parameter(2048, "length of a code, d_z", source="ROG section 4.2", ge=1)

    def plan(self, shape: tuple[int, ...]) -> CodecPlan:
        """Return layer sizes for images of Shape (C, H, W), halved as often as the code allows."""
        channels, height, width = shape
        levels, at = 0, (height, width)
        while CODE_CHANNELS * math.prod(halved(at)) >= self.size and min(at) > 1:
            levels, at = levels + 1, halved(at)
        return CodecPlan(
            channels=channels,
            sides=pyramid((height, width), levels),
            widths=channels_at_levels(self.width, levels, WIDEST),
            code=-(-self.size // math.prod(at)),
        )

    @override
    def check_shape(self, shape: tuple[int, ...]) -> None:
        """Check that a code is shorter than an image.

        Raises:
            IncompatibleError: the code is not shorter.
        """
        if self.size >= math.prod(shape):
            raise IncompatibleError(
                f"knowledge {self}: codes of {self.size} values are not shorter than images of "
                f"{math.prod(shape)}; lower size"
            )

    @override
    def build(self, shape: tuple[int, ...], classes: int) -> Autoencoder:
        from gleak.knowledge.autoencoder_network import Autoencoder

        return Autoencoder(self.plan(shape), self.size)

    @override
    def trainer(self, shape: tuple[int, ...], classes: int) -> Trainer:
        from gleak.knowledge.autoencoder_network import AutoencoderTrainer

        return AutoencoderTrainer(self.build(shape, classes), self.lr)

    @override
    def multiply_adds(self, shape: tuple[int, ...], classes: int) -> int:
        return total_multiply_adds(self.plan(shape).layers)

    @override
    def parameters(self, shape: tuple[int, ...], classes: int) -> int:
        return total_parameters(self.plan(shape).layers)


class GeneratorPlan(NamedTuple):
    """Layer sizes of a generator for images of one shape.

    Args:
        channels: of an image.
        sides: height and width of the images and after each halving.
        widths: channels of the features at each of these.
        coarse: height and width of the coarse image in the first values of a code.
        size: length of a code.
        classes: number of classes.
    """

    channels: int
    sides: list[Sides]
    widths: list[int]
    coarse: Sides
    size: int
    classes: int

    @property
    def features(self) -> tuple[int, int, int]:
        """Shape of the features at the lowest resolution."""
        return (self.widths[-1], *self.sides[-1])

    @property
    def picture(self) -> tuple[int, int, int]:
        """Shape of the coarse image."""
        return (self.channels, *self.coarse)

    @property
    def layers(self) -> list[LayerShape]:
        """Shapes of all layers of `gleak.knowledge.autoencoder_network.Decoder`."""
        levels = list(zip(self.sides, self.widths, strict=True))
        return [
            dense_shape(self.size + self.classes, math.prod(self.features)),
            *(LayerShape(wide, thin, large) for (large, thin), (_, wide) in pairwise(levels)),
            LayerShape(self.widths[0], self.channels, self.sides[0]),
        ]


@register("generator")
class Generator(GenerativeSpec, TrainedSpec):
    """Decoder of a conditional variational autoencoder, from normal codes and classes to images.

    Unlike a generative adversarial network it has a single loss that decreases steadily, so that
    some hundred steps give (smooth) images of a class. The loss has no weight to choose: the
    variance of the pixels is the mean squared error of the step (Rybkin et al. 2021). The first
    values of a code are the offset of a coarse image's logits from those of its class, which are
    learned first; details follow later.
    """

    source = "ROG section 6; Kingma and Welling 2014, Sohn et al. 2015; architecture ours"

    losses: ClassVar[tuple[str, ...]] = ("mse", "kl")

    size: int = parameter(128, "length of a code", source="BigGAN (Brock et al. 2019)", ge=1)

    def plan(self, shape: tuple[int, ...], classes: int) -> GeneratorPlan:
        """Return layer sizes for images of Shape (C, H, W), halved to about four pixels."""
        channels, height, width = shape
        sides = full_pyramid((height, width))
        deepest = pyramid((height, width), max(height, width).bit_length())
        return GeneratorPlan(
            channels=channels,
            sides=sides,
            widths=channels_at_levels(self.width, len(sides) - 1, WIDEST),
            coarse=next(side for side in deepest if channels * math.prod(side) <= self.size),
            size=self.size,
            classes=classes,
        )

    def check_shape(self, shape: tuple[int, ...]) -> None:
        """Check that a code has at least one value per channel.

        Raises:
            IncompatibleError: the code is too short.
        """
        if self.size < shape[0]:
            raise IncompatibleError(
                f"knowledge {self}: codes of {self.size} values are too short for "
                f"{shape[0]} channels; raise size"
            )

    @override
    def build(self, shape: tuple[int, ...], classes: int) -> Decoder:
        from gleak.knowledge.autoencoder_network import Decoder

        return Decoder(self.plan(shape, classes))

    @override
    def trainer(self, shape: tuple[int, ...], classes: int) -> Trainer:
        from gleak.knowledge.autoencoder_network import DecoderTrainer

        return DecoderTrainer(self.build(shape, classes), self.lr)

    @override
    def multiply_adds(self, shape: tuple[int, ...], classes: int) -> int:
        """Return the multiply-adds of the decoder.

        The encoder has as many, which are not counted.
        """
        return total_multiply_adds(self.plan(shape, classes).layers)

    @override
    def parameters(self, shape: tuple[int, ...], classes: int) -> int:
        plan = self.plan(shape, classes)
        return total_parameters(plan.layers) + classes * math.prod(plan.picture)
