"""The VGG network of 16 layers."""

from __future__ import annotations

from typing import ClassVar

from gleak.models.base import Normalised
from gleak.models.vgg import VGG
from gleak.registry import register
from gleak.spec import knob

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

    normalise: Normalised = knob(
        "imagenet", "how images are before the first convolution", source="torchvision"
    )

    @property
    def widths(self) -> list[list[int]]:
        """See `VGG.widths`."""
        return [[width] * depth for width, depth in WIDTHS_AND_DEPTHS]

    @property
    def hidden_layers(self) -> list[int]:
        """See `StagedNetwork.hidden_layers`."""
        return [4096, 4096]
