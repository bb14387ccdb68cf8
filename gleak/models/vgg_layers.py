"""The layers of VGG networks, under torchvision's names."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch import nn

from gleak.models.activations import activation
from gleak.models.normalisation import normalisation_layers

if TYPE_CHECKING:
    from gleak.models.convolution import Convolution
    from gleak.models.vgg import VGG


def vgg_layers(
    model: VGG, stages: Sequence[Sequence[Convolution]], dense: Sequence[tuple[int, int]]
) -> nn.Sequential:
    """Normalisation, convolutions, average pooling and dense layers.

    Args:
        model: names activation, normalisation, dropout and the side pooled to.
        stages: convolutions before each max-pooling.
        dense: inputs and outputs of each dense layer.
    """
    parts: dict[str, nn.Module] = {
        "normalisation": nn.Sequential(*normalisation_layers(model.normalise)),
        "features": _features(stages, model.activation),
        "avgpool": nn.AdaptiveAvgPool2d(model.pooled) if model.pooled else nn.Identity(),
        "flatten": nn.Flatten(),
        "classifier": _classifier(dense, model.activation, model.dropout),
    }
    return nn.Sequential(OrderedDict(parts))


def _features(stages: Sequence[Sequence[Convolution]], nonlinearity: str) -> nn.Sequential:
    layers: list[nn.Module] = []
    for stage in stages:
        for convolution in stage:
            layers += [convolution.layer(), activation(nonlinearity)]
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers)


def _classifier(
    dense: Sequence[tuple[int, int]], nonlinearity: str, dropout: float
) -> nn.Sequential:
    """Dropout stands there even where it drops nothing, for torchvision's names count it."""
    *hidden, last = dense
    layers: list[nn.Module] = []
    for inputs, outputs in hidden:
        layers += [nn.Linear(inputs, outputs), activation(nonlinearity), nn.Dropout(dropout)]
    return nn.Sequential(*layers, nn.Linear(*last))
