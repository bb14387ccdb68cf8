"""VGG networks, which differ in their widths alone (Simonyan and Zisserman 2015)."""

from __future__ import annotations

from abc import abstractmethod
from itertools import pairwise
from typing import TYPE_CHECKING

from typing_extensions import override

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
        from gleak.models.vgg_layers import vgg_layers

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
