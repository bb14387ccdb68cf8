"""VGG networks (Simonyan and Zisserman 2015)."""

from __future__ import annotations

from abc import abstractmethod
from collections import OrderedDict
from itertools import pairwise
from typing import ClassVar

from gleak.core.lazy import torch
from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.models.base import Activation, Convolution, Norm, Normalised, normalisation_layers
from gleak.models.staged import StagedNetwork


class VGG(StagedNetwork):
    """Base class of VGG networks: stages of 3 x 3 convolutions with max pooling, then dense layers.

    Parameters have torchvision's names, with and without batch normalisation; without pooling the
    indices of the convolutions shift. The running statistics are broadcast with the parameters.
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
        """Channels of the convolutions of each stage."""

    @property
    def has_batch_norm(self) -> bool:
        return self.norm == "batch"

    @property
    def values_per_channel(self) -> int:
        """Trained values per channel: a bias, and with batch norm scale and shift."""
        return 3 if self.norm == "batch" else 1

    def convolutions(self, channels: int) -> list[list[Convolution]]:
        before = [channels, *(stage[-1] for stage in self.widths)]
        return [
            [Convolution(*widths) for widths in pairwise([first, *stage])]
            for first, stage in zip(before, self.widths, strict=False)
        ]

    def build(self, shape: tuple[int, ...], classes: int) -> torch.nn.Module:
        pooled = self.pooled
        parts: dict[str, torch.nn.Module] = {
            "normalisation": torch.nn.Sequential(*normalisation_layers(self.normalise)),
            "features": torch.nn.Sequential(*self.convolutional_layers(shape[0], self.norm)),
            "avgpool": torch.nn.AdaptiveAvgPool2d(pooled) if pooled else torch.nn.Identity(),
            "flatten": torch.nn.Flatten(),
            "classifier": torch.nn.Sequential(*self.classifier_layers(shape, classes)),
        }
        return torch.nn.Sequential(OrderedDict(parts))


class DoublingVGG(VGG):
    """Base class of VGG networks of three stages of two convolutions and one hidden dense layer."""

    width: int
    hidden: int

    @property
    def widths(self) -> list[list[int]]:
        return [[self.width * 2**number] * 2 for number in range(3)]

    @property
    def hidden_layers(self) -> list[int]:
        return [self.hidden]


@register("vgg7")
class VGG7(DoublingVGG):
    """VGG-7 as in ROG: six convolutions in three stages, and two dense layers without biases.

    The classifier is not counted. The widths are those of the network of this name in quantisation
    papers. The dense layers see every position of the last stage, 4 x 4 for a CIFAR image and 16 x
    16 for one of 128 x 128, where the first has 134 million weights.
    """

    source = "ROG section 4.2 and the authors' code; Li et al. 2016, Ternary weight networks"
    dense_bias: ClassVar[bool] = False

    width: int = parameter(128, "channels of the first stage", source="Li et al. 2016", ge=1)
    hidden: int = parameter(1024, "neurons of the first dense layer", source="Li et al. 2016", ge=1)
    normalise: Normalised = parameter(
        "none", "normalisation of images before the first convolution", source="none in ROG's code"
    )


@register("vgg16")
class VGG16(VGG):
    """VGG-16 (configuration D), whose first dense layer has 4,096 neurons.

    It equals torchvision's network (with norm=batch, ``vgg16_bn``), so that `pretrained` parameters
    fit. Features are averaged to 7 x 7 before the dense layers, which does not change those of 224
    x 224 images, and the first layer normalises by ImageNet's means and deviations. Dropout, 0.5 in
    training, is off by default.
    """

    source = "Simonyan and Zisserman 2015, Table 1 D; CPA section V-A"
    pooled: ClassVar[int | None] = 7

    normalise: Normalised = parameter(
        "imagenet", "normalisation of images before the first convolution", source="torchvision"
    )

    @property
    def widths(self) -> list[list[int]]:
        return [[64] * 2, [128] * 2, [256] * 3, [512] * 3, [512] * 3]

    @property
    def hidden_layers(self) -> list[int]:
        return [4096, 4096]


@register("vgg_small")
class VGGSmall(DoublingVGG):
    """Small VGG network for CPUs: three stages of two convolutions and one hidden dense layer."""

    source = "ours, after Simonyan and Zisserman 2015"

    width: int = parameter(32, "channels of the first stage", source="ours", ge=1)
    hidden: int = parameter(512, "neurons of the first dense layer", source="ours", ge=1)
    normalise: Normalised = parameter(
        "none", "normalisation of images before the first convolution", source="ours"
    )
