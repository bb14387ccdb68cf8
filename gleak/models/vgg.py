"""VGG networks, which differ in their widths alone (Simonyan and Zisserman 2015)."""

from __future__ import annotations

import math
from abc import abstractmethod
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar, Literal

from gleak.data.base import Modality
from gleak.errors import FitError
from gleak.models.base import Activation, ModelSpec
from gleak.models.convolution import Convolution
from gleak.spec import knob

if TYPE_CHECKING:
    from torch import nn

Normalised = Literal["imagenet", "none"]
COLOURS = 3


class VGG(ModelSpec):
    """Base of the VGG networks: stages of 3 x 3 convolutions, each halved by pooling; dense layers.

    ``pooled`` is the side that images are averaged to before the dense layers; None: they are taken
    as they are. Parameters have the names of torchvision's networks. No layer overwrites the
    outputs of another, so that gradients can be split layer by layer (see
    `gleak.matching.gradients`).
    """

    pooled: ClassVar[int | None] = None

    activation: Activation = knob("relu", "after each layer but the last", source="VGG section 2.1")
    normalise: Normalised
    dropout: float = knob(
        0.0,
        "share of the hidden dense values a client drops; attackers drop none",
        source="ours: CPA names none; 0.5 in VGG section 3.1",
        ge=0,
        lt=1,
    )

    @property
    @abstractmethod
    def stages(self) -> list[list[int]]:
        """Channels of each stage's convolutions."""

    @property
    @abstractmethod
    def hidden_layers(self) -> list[int]:
        """Neurons of each dense layer but the last."""

    def check(self, modality: Modality, shape: tuple[int, ...]) -> None:
        """Refuse channels that ImageNet's means are not of, too; see `ModelSpec.check`."""
        super().check(modality, shape)
        if self.normalise == "imagenet" and shape[0] != COLOURS:
            raise FitError(
                f"model {self} normalises images of {COLOURS} channels, and these have {shape[0]}; "
                "normalise=none takes any"
            )

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """See `ModelSpec.build`."""
        from gleak.models.vgg_layers import vgg_layers

        return vgg_layers(self, self.convolutions(shape[0]), self.dense_layers(shape, classes))

    def convolutions(self, channels: int) -> list[list[Convolution]]:
        """Each stage's convolutions, on images of so many channels."""
        before = [channels, *(stage[-1] for stage in self.stages)]
        return [
            [Convolution(*widths) for widths in pairwise([first, *stage])]
            for first, stage in zip(before, self.stages, strict=False)
        ]

    def dense_layers(self, shape: tuple[int, ...], classes: int) -> list[tuple[int, int]]:
        """Inputs and outputs of each dense layer."""
        sides = [self.pooled or side // 2 ** len(self.stages) for side in shape[1:]]
        features = self.stages[-1][-1] * math.prod(sides)
        return list(pairwise([features, *self.hidden_layers, classes]))

    def first_dense_neurons(self, classes: int | None) -> int | None:
        """See `ModelSpec.first_dense_neurons`."""
        return self.hidden_layers[0]

    def multiply_adds(self, shape: tuple[int, ...], classes: int) -> int:
        """See `ModelSpec.multiply_adds`."""
        convolutions = sum(
            convolution.weights * math.prod(side // 2**halvings for side in shape[1:])
            for halvings, stage in enumerate(self.convolutions(shape[0]))
            for convolution in stage
        )
        dense = sum(inputs * outputs for inputs, outputs in self.dense_layers(shape, classes))
        return convolutions + dense

    def parameters(self, shape: tuple[int, ...], classes: int) -> int:
        """See `ModelSpec.parameters`."""
        convolutions = sum(
            convolution.weights + convolution.outputs
            for stage in self.convolutions(shape[0])
            for convolution in stage
        )
        dense = sum((inputs + 1) * outputs for inputs, outputs in self.dense_layers(shape, classes))
        return convolutions + dense
