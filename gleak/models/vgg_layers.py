"""The layers of VGG networks, under torchvision's names."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch import nn

from gleak.models.normalisation import normalisation_layers
from gleak.models.staged_layers import convolutional_layers, dense_layers

if TYPE_CHECKING:
    from gleak.models.convolution import Convolution
    from gleak.models.vgg import VGG


def vgg_layers(
    model: VGG, stages: Sequence[Sequence[Convolution]], dense: Sequence[tuple[int, int]]
) -> nn.Sequential:
    """Normalisation, convolutions, average pooling and dense layers.

    Args:
        model: names activation, normalisations, downsampling, dropout and the side averaged to.
        stages: convolutions of each stage.
        dense: inputs and outputs of each dense layer.
    """
    pooling = nn.MaxPool2d if model.downsampling == "pooling" else None
    features = convolutional_layers(stages, model.activation, pooling, model.norm)
    parts: dict[str, nn.Module] = {
        "normalisation": nn.Sequential(*normalisation_layers(model.normalise)),
        "features": nn.Sequential(*features),
        "avgpool": nn.AdaptiveAvgPool2d(model.pooled) if model.pooled else nn.Identity(),
        "flatten": nn.Flatten(),
        "classifier": nn.Sequential(*dense_layers(dense, model.activation, model.dropout)),
    }
    return nn.Sequential(OrderedDict(parts))
