"""The residual network of 18 layers."""

from __future__ import annotations

from typing import ClassVar

from typing_extensions import override

from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.models.base import Activation, Norm, Normalised
from gleak.models.imagenet_residual import ImageNetResidual
from gleak.models.residual import Block, basic_block


@register("resnet18")
class ResNet18(ImageNetResidual):
    """ImageNet ResNet of 18 layers, without batch norm: four stages of two blocks, as in ROG.

    ROG leaves batch norm out since federated learning suffers from it; all convolutions have biases
    instead. With norm=batch and normalise=imagenet it is torchvision's network, so `pretrained`
    parameters fit; batch norm is then in evaluation mode when clients compute gradients.
    """

    source = "He et al. 2016, Table 1; ROG section 4.2"
    depths: ClassVar[tuple[int, ...]] = (2, 2, 2, 2)

    activation: Activation = parameter("relu", "after each convolution and sum", source="He et al.")
    norm: Norm = parameter(
        "none",
        "none: convolutions have biases instead of a batch norm behind them",
        source="ROG section 4.2; batch in He et al.",
    )
    normalise: Normalised = parameter(
        "none",
        "how images are before the first convolution",
        source="ours: ROG names none; imagenet in torchvision",
    )

    @override
    def block(self, inputs: int, width: int, stride: int) -> Block:
        return basic_block(inputs, width, stride)
