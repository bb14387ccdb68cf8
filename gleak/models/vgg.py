"""VGG networks (Simonyan and Zisserman 2015)."""

from __future__ import annotations

from abc import abstractmethod
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar

from typing_extensions import override

from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.data.base import Modality
from gleak.models.base import Activation, Norm, Normalised, check_colours
from gleak.models.convolution import Convolution
from gleak.models.staged import StagedNetwork

if TYPE_CHECKING:
    from torch import nn


STAGES = 3
DEPTH = 2


class VGG(StagedNetwork):
    """Base of the VGG networks: stages of 3 x 3 convolutions, each max-pooled; dense layers.

    Parameters have the names of torchvision's networks, with and without batch norm; where nothing
    is pooled the numbers of the convolutions shift. Batch norm is in evaluation mode when clients
    compute gradients: the running statistics are broadcast with the parameters.
    """

    activation: Activation = parameter(
        "relu", "after each layer but the last", source="VGG section 2.1"
    )
    normalise: Normalised
    norm: Norm = parameter(
        "none",
        "batch: between each convolution, which keeps its bias, and its activation",
        source="VGG section 2.1; batch: torchvision's networks of that kind, MKOR section 3.5",
    )

    @property
    @abstractmethod
    def widths(self) -> list[list[int]]:
        """Channels of each stage's convolutions."""

    @property
    @override
    def values_per_channel(self) -> int:
        """Batch norm adds a scale and a shift."""
        return 3 if self.norm == "batch" else 1

    def check(self, modality: Modality, shape: tuple[int, ...]) -> None:
        """Refuse channels that ImageNet's means are not of, too; see `ModelSpec.check`."""
        super().check(modality, shape)
        check_colours(self, self.normalise, shape)

    @override
    def convolutions(self, channels: int) -> list[list[Convolution]]:
        before = [channels, *(stage[-1] for stage in self.widths)]
        return [
            [Convolution(*widths) for widths in pairwise([first, *stage])]
            for first, stage in zip(before, self.widths, strict=False)
        ]

    @override
    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        from gleak.models.staged_layers import vgg_layers

        return vgg_layers(self, shape, classes)


class DoublingVGG(VGG):
    """Base of those of three stages of two convolutions, twice as wide each time.

    One hidden dense layer follows.
    """

    width: int
    hidden: int

    @property
    @override
    def widths(self) -> list[list[int]]:
        return [[self.width * 2**number] * DEPTH for number in range(STAGES)]

    @property
    @override
    def hidden_layers(self) -> list[int]:
        return [self.hidden]


@register("vgg7")
class VGG7(DoublingVGG):
    """VGG-7: six convolutions in three stages, a hidden dense layer of 1,024 and the classifier.

    ROG says no more than that it has seven layers and 3 x 3 kernels. The widths are our reading:
    those of the network that quantisation is tried on under this name, in which the classifier does
    not count. Its last stage leaves 4 x 4 positions of a CIFAR image; larger images are averaged to
    as many, else the dense layer would have 134 million weights at 128 x 128.
    """

    source = "ROG section 4.2 and Appendix D; Li et al. 2016, Ternary weight networks, section 3"
    pooled: ClassVar[int | None] = 4

    width: int = parameter(128, "channels of the first stage", source="Li et al. 2016", ge=1)
    hidden: int = parameter(1024, "neurons of the first dense layer", source="Li et al. 2016", ge=1)
    normalise: Normalised = parameter(
        "none", "how images are before the first convolution", source="ours: ROG names none"
    )


WIDTHS_AND_DEPTHS = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))


@register("vgg16")
class VGG16(VGG):
    """VGG-16 (configuration D); the first dense layer has 4,096 neurons.

    It is torchvision's network, with norm=batch its ``vgg16_bn``, so `pretrained` parameters fit:
    images are averaged to 7 x 7 before the dense layers, which leaves those of 224 x 224 as they
    are, and the first layer normalises by ImageNet's means and deviations. Dropout, 0.5 in
    training, is off by default.
    """

    source = "Simonyan and Zisserman 2015, Table 1 D; CPA section V-A"
    pooled: ClassVar[int | None] = 7

    normalise: Normalised = parameter(
        "imagenet", "how images are before the first convolution", source="torchvision"
    )

    @property
    @override
    def widths(self) -> list[list[int]]:
        return [[width] * depth for width, depth in WIDTHS_AND_DEPTHS]

    @property
    @override
    def hidden_layers(self) -> list[int]:
        return [4096, 4096]


@register("vgg_small")
class VGGSmall(DoublingVGG):
    """Three stages of two convolutions, twice as wide each time, and one hidden dense layer."""

    source = "ours, after Simonyan and Zisserman 2015"

    width: int = parameter(32, "channels of the first stage", source="ours", ge=1)
    hidden: int = parameter(512, "neurons of the first dense layer", source="ours", ge=1)
    normalise: Normalised = parameter(
        "none", "how images are before the first convolution", source="ours"
    )
