"""Images of a class from random codes, by a conditional variational autoencoder."""

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
    dense,
    pyramid,
    total_size,
    total_work,
    whole_pyramid,
    widths,
)
from gleak.knowledge.generative import GenerativeSpec
from gleak.knowledge.trained import TrainedSpec

if TYPE_CHECKING:
    from gleak.knowledge.generator_network import Decoder
    from gleak.knowledge.trainer import Trainer

WIDEST = 4


class Plan(NamedTuple):
    """The sizes of a generator for images of one shape.

    Args:
        channels: of an image.
        sides: height and width of the images and after each halving.
        widths: channels of the features at each of these.
        coarse: height and width of the picture that the first numbers of a code are.
        size: numbers of a code.
        classes: told apart.
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
        """Shape of the coarse picture."""
        return (self.channels, *self.coarse)

    @property
    def layers(self) -> list[Convolution]:
        """Every layer of the generator, as `gleak.knowledge.generator_network` has them."""
        levels = list(zip(self.sides, self.widths, strict=True))
        return [
            dense(self.size + self.classes, math.prod(self.features)),
            *(Convolution(wide, thin, large) for (large, thin), (_, wide) in pairwise(levels)),
            Convolution(self.widths[0], self.channels, self.sides[0]),
        ]


@register("generator")
class Generator(GenerativeSpec, TrainedSpec):
    """The decoder of a conditional variational autoencoder: normal codes and a class to images.

    Unlike an adversarial generator it is trained by one loss, which falls steadily from the first
    step, so that some hundred steps already give images of a class; they are smooth. The loss has
    no weight to choose: the deviation of the pixels is taken to be what the errors of the step say
    (Rybkin et al. 2021). The first numbers of a code are how the logits of a coarse picture depart
    from those of its class, which are learned first; the details come later.
    """

    source = "ROG section 6; Kingma and Welling 2014, Sohn et al. 2015; architecture ours"

    losses: ClassVar[tuple[str, ...]] = ("mse", "kl")

    size: int = parameter(128, "numbers of a code", source="BigGAN (Brock et al. 2019)", ge=1)

    def plan(self, shape: tuple[int, ...], classes: int) -> Plan:
        """The sizes for images of Shape (C, H, W), halved down to four pixels or little more."""
        channels, height, width = shape
        sides = whole_pyramid((height, width))
        deepest = pyramid((height, width), max(height, width).bit_length())
        return Plan(
            channels=channels,
            sides=sides,
            widths=widths(self.width, len(sides) - 1, WIDEST),
            coarse=next(side for side in deepest if channels * math.prod(side) <= self.size),
            size=self.size,
            classes=classes,
        )

    def check_shape(self, shape: tuple[int, ...]) -> None:
        """See `KnowledgeSpec.check_shape`.

        Raises:
            IncompatibleError: a code has no number for each channel.
        """
        if self.size < shape[0]:
            raise IncompatibleError(
                f"knowledge {self}: codes of {self.size} numbers say nothing of each of the "
                f"{shape[0]} channels; raise size"
            )

    @override
    def build(self, shape: tuple[int, ...], classes: int) -> Decoder:
        from gleak.knowledge.generator_network import Decoder

        return Decoder(self.plan(shape, classes))

    @override
    def trainer(self, shape: tuple[int, ...], classes: int) -> Trainer:
        from gleak.knowledge.generator_training import DecoderTrainer

        return DecoderTrainer(self.build(shape, classes), self.lr)

    @override
    def multiply_adds(self, shape: tuple[int, ...], classes: int) -> int:
        """Those of the encoder it is trained with are as many.

        They are left out.
        """
        return total_work(self.plan(shape, classes).layers)

    @override
    def parameters(self, shape: tuple[int, ...], classes: int) -> int:
        plan = self.plan(shape, classes)
        return total_size(plan.layers) + classes * math.prod(plan.picture)
