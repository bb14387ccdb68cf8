"""The layers of networks of stages (see `gleak.models.staged`), in the order they run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch import nn

from gleak.models.activations import activation

if TYPE_CHECKING:
    from gleak.models.base import Norm
    from gleak.models.convolution import Convolution


def convolutional_layers(
    stages: Sequence[Sequence[Convolution]],
    nonlinearity: str,
    pooling: type[nn.MaxPool2d | nn.AvgPool2d] | None,
    norm: Norm = "none",
) -> list[nn.Module]:
    """Convolutions, each activated, and what pools each stage's outputs.

    Args:
        stages: convolutions of each stage.
        nonlinearity: name of the activation.
        pooling: of 2 x 2 positions behind each stage; None: nothing is pooled.
        norm: "batch" between each convolution and its activation; convolutions keep their biases.
    """
    layers: list[nn.Module] = []
    for stage in stages:
        for convolution in stage:
            normalised = [nn.BatchNorm2d(convolution.outputs)] if norm == "batch" else []
            layers += [convolution.layer(), *normalised, activation(nonlinearity)]
        layers += [] if pooling is None else [pooling(2)]
    return layers


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
