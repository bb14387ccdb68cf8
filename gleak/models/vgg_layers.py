"""The layers of VGG networks, under torchvision's names."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from torch import nn

from gleak.models.normalisation import normalisation_layers
from gleak.models.staged_layers import classifier_layers, convolutional_layers

if TYPE_CHECKING:
    from gleak.models.vgg import VGG


def vgg_layers(model: VGG, shape: tuple[int, ...], classes: int) -> nn.Sequential:
    """Normalisation, convolutions, average pooling and dense layers.

    Args:
        model: names normalisations, the side averaged to and what its layers are made of.
        shape: of an image.
        classes: number of outputs.
    """
    parts: dict[str, nn.Module] = {
        "normalisation": nn.Sequential(*normalisation_layers(model.normalise)),
        "features": nn.Sequential(*convolutional_layers(model, shape[0], model.norm)),
        "avgpool": nn.AdaptiveAvgPool2d(model.pooled) if model.pooled else nn.Identity(),
        "flatten": nn.Flatten(),
        "classifier": nn.Sequential(*classifier_layers(model, shape, classes)),
    }
    return nn.Sequential(OrderedDict(parts))
