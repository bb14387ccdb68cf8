"""The residual network of 50 layers."""

from __future__ import annotations

from typing import ClassVar

from typing_extensions import override

from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.models.base import Activation, Norm, Normalised
from gleak.models.imagenet_residual import ImageNetResidual
from gleak.models.residual import Block, bottleneck


@register("resnet50")
class ResNet50(ImageNetResidual):
    """ImageNet ResNet of 50 layers: 3, 4, 6 and 3 bottlenecks of 64, 128, 256 and 512 channels.

    It is torchvision's network, so `pretrained` parameters fit: the second convolution of a
    bottleneck has its stride, not the first, and the first layer normalises by ImageNet's means
    and deviations. Batch norm is in evaluation mode when clients compute gradients: the running
    statistics are broadcast with the parameters.
    """

    source = "He et al. 2016, Table 1; torchvision; AGIC section V"
    depths: ClassVar[tuple[int, ...]] = (3, 4, 6, 3)

    activation: Activation = parameter("relu", "after each convolution and sum", source="He et al.")
    norm: Norm = parameter("batch", "none: convolutions have biases instead", source="He et al.")
    normalise: Normalised = parameter(
        "imagenet", "how images are before the first convolution", source="torchvision"
    )

    @override
    def block(self, inputs: int, width: int, stride: int) -> Block:
        return bottleneck(inputs, width, stride)
