"""Layers of staged networks (see `gleak.models.staged`) and of VGG networks."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch import nn

from gleak.models.layers import activation, normalisation_layers
from gleak.models.variational import variational_layers

if TYPE_CHECKING:
    from gleak.models.base import Norm
    from gleak.models.staged import StagedNetwork
    from gleak.models.vgg import VGG


POOLINGS: dict[str, type[nn.MaxPool2d | nn.AvgPool2d]] = {
    "max": nn.MaxPool2d,
    "average": nn.AvgPool2d,
}


def staged_layers(model: StagedNetwork, shape: tuple[int, ...], classes: int) -> nn.Sequential:
    """Convolutions and dense layers, all side by side.

    Args:
        model: see `convolutional_layers` and `classifier_layers`.
        shape: of an image.
        classes: number of outputs.
    """
    convolutions = convolutional_layers(model, shape[0])
    return nn.Sequential(*convolutions, nn.Flatten(), *classifier_layers(model, shape, classes))


def convolutional_layers(
    model: StagedNetwork, channels: int, norm: Norm = "none"
) -> list[nn.Module]:
    """Convolutions, each activated, and what pools each stage's outputs.

    Args:
        model: names stages, activation, pooling and downsampling.
        channels: of an image.
        norm: "batch" between each convolution and its activation; convolutions keep their biases.
    """
    layers: list[nn.Module] = []
    for stage in model.stages(channels):
        for convolution in stage:
            normalised = [nn.BatchNorm2d(convolution.outputs)] if norm == "batch" else []
            layers += [convolution.layer(), *normalised, activation(model.activation)]
        layers += [POOLINGS[model.pooling](2)] if model.downsampling == "pooling" else []
    return layers


def classifier_layers(
    model: StagedNetwork, shape: tuple[int, ...], classes: int
) -> list[nn.Module]:
    """Dense layers and, before the last, the variational block, if there is one.

    Args:
        model: names widths, activation, the share of values that are dropped and the block.
        shape: of an image.
        classes: number of outputs.
    """
    sizes = model.dense_layers(shape, classes)
    *hidden, last = dense_layers(sizes, model.activation, model.dropout)
    return [*hidden, *variational_layers(model, sizes[-1][0]), last]


def dense_layers(
    sizes: Sequence[tuple[int, int]], nonlinearity: str, dropout: float
) -> list[nn.Module]:
    """Dense layers, each but the last activated and dropped out.

    Dropout stands there even where it drops nothing: torchvision's names count it.

    Args:
        sizes: inputs and outputs of each layer.
        nonlinearity: name of the activation.
        dropout: share of the values that are dropped in training.
    """
    *hidden, last = sizes
    layers: list[nn.Module] = []
    for inputs, outputs in hidden:
        layers += [nn.Linear(inputs, outputs), activation(nonlinearity), nn.Dropout(dropout)]
    return [*layers, nn.Linear(*last)]


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
