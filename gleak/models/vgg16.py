"""The VGG network of 16 layers."""

from __future__ import annotations

from typing import ClassVar

from typing_extensions import override

from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.models.base import Normalised
from gleak.models.vgg import VGG

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
