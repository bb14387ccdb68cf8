"""Postprocessor: coarse reconstructions enhanced by a generative adversarial network."""

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
    """Layer sizes of a U-Net for images of one shape.

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
        """Shapes of all convolutions of `gleak.knowledge.postprocessor_network.UNet`."""
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
    """U-Net that enhances reconstructions, trained against a PatchGAN on degraded images.

    Images are degraded in three ways, in random order: downscaling and upscaling, noise, and blur.
    The loss is the mean absolute error plus ``adversarial`` times the adversarial loss. The
    network's output is added to the image and is zero before training.
    """

    source = "ROG section 4.2 and Appendix A"

    losses: ClassVar[tuple[str, ...]] = ("l1", "adversarial", "discriminator")

    lr: float = parameter(1e-5, "learning rate of both Adams", source="ROG Appendix A", gt=0)
    adversarial: float = parameter(
        0.01, "weight of the adversarial loss", source="pix2pix (Isola et al. 2017)", ge=0
    )
    scale: int = parameter(
        4, "factor by which images are downscaled", source="ROG section 4.2", ge=1
    )
    noise: float = parameter(
        0.1, "largest standard deviation of the noise", source="BSRGAN (Zhang et al. 2021)", ge=0
    )
    blur: float = parameter(
        2.8,
        "largest standard deviation of the blur",
        unit="px",
        source="BSRGAN (Zhang et al. 2021)",
        ge=0,
    )

    def plan(self, shape: tuple[int, ...]) -> Plan:
        """Return layer sizes for images of Shape (C, H, W), with at most four halvings."""
        channels, height, width = shape
        sides = full_pyramid((height, width))[: DEEPEST + 1]
        return Plan(channels, sides, channels_at_levels(self.width, len(sides) - 1, WIDEST))

    def check_shape(self, shape: tuple[int, ...]) -> None:
        """Check that images are large enough.

        Raises:
            IncompatibleError: features are too small to normalise after one halving, or images to
                downscale.
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
        """Return the multiply-adds of the U-Net, without the few of the discriminator."""
        return total_multiply_adds(self.plan(shape).layers)

    @override
    def parameters(self, shape: tuple[int, ...], classes: int) -> int:
        return total_parameters(self.plan(shape).layers)
