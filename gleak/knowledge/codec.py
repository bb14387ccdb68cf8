"""Images as short codes, by an autoencoder."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from typing_extensions import override

from gleak.core.errors import IncompatibleError
from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.knowledge.convolutions import (
    Convolution,
    Sides,
    halve,
    pyramid,
    total_size,
    total_work,
    widths,
)
from gleak.knowledge.trained import TrainedSpec

if TYPE_CHECKING:
    from gleak.knowledge.codec_network import Autoencoder
    from gleak.knowledge.trainer import Trainer

CODE_CHANNELS = 8
WIDEST = 4


class Plan(NamedTuple):
    """The sizes of a codec for images of one shape.

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
    def layers(self) -> list[Convolution]:
        """Every convolution, as `gleak.knowledge.codec_network` has them."""
        levels = list(zip(self.sides, self.widths, strict=True))
        steps = list(pairwise(levels))
        (first, narrow), (last, wide) = levels[0], levels[-1]
        return [
            Convolution(self.channels, narrow, first),
            *(Convolution(thin, wide, small) for (_, thin), (small, wide) in steps),
            *(Convolution(wide, wide, small) for small, wide in levels[1:] for _ in range(4)),
            Convolution(wide, self.code, last),
            Convolution(self.code, wide, last),
            *(Convolution(wide, thin, large) for (large, thin), (_, wide) in steps),
            Convolution(narrow, self.channels, first),
        ]


@register("codec")
class Codec(TrainedSpec):
    """A convolutional autoencoder whose codes are ``size`` numbers, trained on the squared error.

    A code is a small picture of at most 8 channels: 8 x 32 x 32 for 8192 numbers of an image of
    128 x 128 pixels, 8 x 8 x 8 for 512. Where ``size`` does not fill the last channel, the rest of
    it is zero. Before any training the code is the image scaled down, so few steps already serve.
    """

    source = "ROG section 4.2; architecture ours"

    losses: ClassVar[tuple[str, ...]] = ("mse",)

    size: int = parameter(2048, "numbers of a code, d_z", source="ROG section 4.2", ge=1)

    def plan(self, shape: tuple[int, ...]) -> Plan:
        """The sizes for images of Shape (C, H, W), halved as often as the code's channels allow."""
        channels, height, width = shape
        levels, at = 0, (height, width)
        while CODE_CHANNELS * math.prod(halve(at)) >= self.size and min(at) > 1:
            levels, at = levels + 1, halve(at)
        return Plan(
            channels=channels,
            sides=pyramid((height, width), levels),
            widths=widths(self.width, levels, WIDEST),
            code=-(-self.size // math.prod(at)),
        )

    @override
    def check_shape(self, shape: tuple[int, ...]) -> None:
        """A code is shorter than its image.

        Raises:
            IncompatibleError: it is not.
        """
        if self.size >= math.prod(shape):
            raise IncompatibleError(
                f"knowledge {self}: codes of {self.size} numbers are no shorter than images of "
                f"{math.prod(shape)}; lower size"
            )

    @override
    def build(self, shape: tuple[int, ...], classes: int) -> Autoencoder:
        from gleak.knowledge.codec_network import Autoencoder

        return Autoencoder(self.plan(shape), self.size)

    @override
    def trainer(self, shape: tuple[int, ...], classes: int) -> Trainer:
        from gleak.knowledge.codec_network import AutoencoderTrainer

        return AutoencoderTrainer(self.build(shape, classes), self.lr)

    @override
    def multiply_adds(self, shape: tuple[int, ...], classes: int) -> int:
        return total_work(self.plan(shape).layers)

    @override
    def parameters(self, shape: tuple[int, ...], classes: int) -> int:
        return total_size(self.plan(shape).layers)
