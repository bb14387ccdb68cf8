"""Layers of staged networks (see `gleak.models.staged`) and of VGG networks."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gleak.core.lazy import torch
from gleak.models.layers import activation, normalisation_layers
from gleak.models.variational import variational_layers

if TYPE_CHECKING:
    from gleak.models.base import Norm
    from gleak.models.staged import StagedNetwork
    from gleak.models.vgg import VGG

POOLINGS: dict[str, type[torch.nn.MaxPool2d | torch.nn.AvgPool2d]] = {
    "max": torch.nn.MaxPool2d,
    "average": torch.nn.AvgPool2d,
}


def staged_layers(
    model: StagedNetwork, shape: tuple[int, ...], classes: int
) -> torch.nn.Sequential:
    """Build a network of convolutions and dense layers as one flat sequence.

    Args:
        model: see `convolutional_layers` and `classifier_layers`.
        shape: of an image.
        classes: number of outputs.
    """
    convolutions = convolutional_layers(model, shape[0])
    return torch.nn.Sequential(
        *convolutions, torch.nn.Flatten(), *classifier_layers(model, shape, classes)
    )


def convolutional_layers(
    model: StagedNetwork, channels: int, norm: Norm = "none"
) -> list[torch.nn.Module]:
    """Build the convolutions, their activations and the pooling after each stage.

    Args:
        model: spec with stages, activation, pooling and downsampling.
        channels: of an image.
        norm: "batch" between each convolution and its activation; convolutions keep their biases.
    """
    layers: list[torch.nn.Module] = []
    for stage in model.stages(channels):
        for convolution in stage:
            normalised = [torch.nn.BatchNorm2d(convolution.outputs)] if norm == "batch" else []
            layers += [convolution.layer(), *normalised, activation(model.activation)]
        layers += [POOLINGS[model.pooling](2)] if model.downsampling == "pooling" else []
    return layers


def classifier_layers(
    model: StagedNetwork, shape: tuple[int, ...], classes: int
) -> list[torch.nn.Module]:
    """Build the dense layers and, before the last, the variational block if there is one.

    Args:
        model: spec with widths, activation, dropout probability and variational block.
        shape: of an image.
        classes: number of outputs.
    """
    sizes = model.dense_layers(shape, classes)
    *hidden, last = dense_layers(sizes, model.activation, model.dropout, bias=model.dense_bias)
    return [*hidden, *variational_layers(model, sizes[-1][0]), last]


def dense_layers(
    sizes: Sequence[tuple[int, int]], nonlinearity: str, dropout: float, *, bias: bool
) -> list[torch.nn.Module]:
    """Build dense layers, each but the last followed by an activation and dropout.

    Dropout layers are there even with probability 0, as torchvision's parameter names count them.

    Args:
        sizes: inputs and outputs of each layer.
        nonlinearity: name of the activation.
        dropout: probability with which values are dropped in training.
        bias: whether the layers have biases.
    """
    *hidden, last = sizes
    layers: list[torch.nn.Module] = []
    for inputs, outputs in hidden:
        layer = torch.nn.Linear(inputs, outputs, bias=bias)
        layers += [layer, activation(nonlinearity), torch.nn.Dropout(dropout)]
    return [*layers, torch.nn.Linear(*last, bias=bias)]


def vgg_layers(model: VGG, shape: tuple[int, ...], classes: int) -> torch.nn.Sequential:
    """Build a VGG network, with torchvision's parameter names.

    Args:
        model: spec with normalisations, pooled side and layer sizes.
        shape: of an image.
        classes: number of outputs.
    """
    parts: dict[str, torch.nn.Module] = {
        "normalisation": torch.nn.Sequential(*normalisation_layers(model.normalise)),
        "features": torch.nn.Sequential(*convolutional_layers(model, shape[0], model.norm)),
        "avgpool": torch.nn.AdaptiveAvgPool2d(model.pooled)
        if model.pooled
        else torch.nn.Identity(),
        "flatten": torch.nn.Flatten(),
        "classifier": torch.nn.Sequential(*classifier_layers(model, shape, classes)),
    }
    return torch.nn.Sequential(OrderedDict(parts))
