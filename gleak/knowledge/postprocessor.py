"""Coarse reconstructions made sharp, by a generative adversarial network."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from typing_extensions import override

from gleak.core.errors import IncompatibleError
from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.knowledge.base import TrainedSpec
from gleak.knowledge.layer_shapes import (
    SMALLEST_SIDE,
    LayerShape,
    Sides,
    channels_at_levels,
    full_pyramid,
    total_multiply_adds,
    total_parameters,
)

if TYPE_CHECKING:
    from gleak.knowledge.postprocessor_network import UNet
    from gleak.knowledge.train_knowledge import Trainer

DEEPEST = 4
WIDEST = 8


class Plan(NamedTuple):
    """The sizes of a U-Net for images of one shape.

    Args:
        channels: of an image.
        sides: height and width of the images and after each halving.
        widths: channels of the features at each of these.
    """

    channels: int
    sides: list[Sides]
    widths: list[int]

    @property
    def layers(self) -> list[LayerShape]:
        """Every convolution, as `gleak.knowledge.postprocessor_network` has them."""
        levels = list(zip(self.sides, self.widths, strict=True))
        steps = list(pairwise(levels))
        return [
            LayerShape(self.channels, self.widths[0], self.sides[0]),
            *(LayerShape(wide, wide, side) for side, wide in levels),
            *(LayerShape(thin, wide, small) for (_, thin), (small, wide) in steps),
            *(LayerShape(wide, thin, large) for (large, thin), (_, wide) in steps),
            *(LayerShape(2 * thin, thin, large) for (large, thin), _ in steps),
            LayerShape(self.widths[0], self.channels, self.sides[0]),
        ]


@register("postprocessor")
class Postprocessor(TrainedSpec):
    """A U-Net that enhances what an attack found, trained against a PatchGAN on degraded images.

    Images are degraded in three ways, in an order drawn for each: scaled down and up again,
    given noise, and blurred. The loss is the mean absolute error plus ``adversarial`` times that of
    deceiving the discriminator. The network adds to an image what it has learned, nothing at first.
    """

    source = "ROG section 4.2 and Appendix A"

    losses: ClassVar[tuple[str, ...]] = ("l1", "adversarial", "discriminator")

    lr: float = parameter(1e-5, "learning rate of both Adams", source="ROG Appendix A", gt=0)
    adversarial: float = parameter(
        0.01, "weight of the adversarial loss", source="pix2pix (Isola et al. 2017)", ge=0
    )
    scale: int = parameter(
        4, "images are scaled down so many times", source="ROG section 4.2", ge=1
    )
    noise: float = parameter(
        0.1, "largest deviation of the noise", source="BSRGAN (Zhang et al. 2021)", ge=0
    )
    blur: float = parameter(
        2.8,
        "largest deviation of the blur",
        unit="px",
        source="BSRGAN (Zhang et al. 2021)",
        ge=0,
    )

    def plan(self, shape: tuple[int, ...]) -> Plan:
        """The sizes for images of Shape (C, H, W): four halvings, fewer where sides are short."""
        channels, height, width = shape
        sides = full_pyramid((height, width))[: DEEPEST + 1]
        return Plan(channels, sides, channels_at_levels(self.width, len(sides) - 1, WIDEST))

    def check_shape(self, shape: tuple[int, ...]) -> None:
        """See `KnowledgeSpec.check_shape`.

        Raises:
            IncompatibleError: nothing is left to normalise after one halving, or to scale down.
        """
        least = max(2 * SMALLEST_SIDE, self.scale)
        if min(shape[1:]) < least:
            raise IncompatibleError(
                f"knowledge {self} needs images of {least} pixels or more, not {shape}"
            )

    @override
    def build(self, shape: tuple[int, ...], classes: int) -> UNet:
        from gleak.knowledge.postprocessor_network import UNet

        return UNet(self.plan(shape))

    @override
    def trainer(self, shape: tuple[int, ...], classes: int) -> Trainer:
        from gleak.knowledge.postprocessor_network import PostprocessorTrainer

        return PostprocessorTrainer(self.build(shape, classes), self, shape)

    @override
    def multiply_adds(self, shape: tuple[int, ...], classes: int) -> int:
        """The discriminator's, which are few, are left out."""
        return total_multiply_adds(self.plan(shape).layers)

    @override
    def parameters(self, shape: tuple[int, ...], classes: int) -> int:
        return total_parameters(self.plan(shape).layers)
