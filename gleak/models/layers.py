"""Layers that several architectures share: activations, dropout and input normalisation."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

ACTIVATIONS: dict[str, type[nn.Module]] = {
    "sigmoid": nn.Sigmoid,
    "tanh": nn.Tanh,
    "relu": nn.ReLU,
    "leaky_relu": nn.LeakyReLU,
}


def activation(name: str) -> nn.Module:
    """Build an activation function by its name (see `gleak.models.base.Activation`)."""
    return ACTIVATIONS[name]()


def dropout_layers(probability: float) -> list[nn.Module]:
    """Return a dropout layer, or no layer for probability 0."""
    return [nn.Dropout(probability)] if probability else []


MEANS_AND_DEVIATIONS = {
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "cifar10": ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
    "cifar100": ((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
}
"""Of intensities in the training sets, for each colour."""


class Normalisation(nn.Module):
    """Normalisation of images by mean and standard deviation of each channel.

    Both belong to the architecture and not to its state, so parameter files contain neither.

    Args:
        mean: of each channel, of intensities in [0, 1].
        deviation: standard deviation of each channel.
    """

    mean: Tensor
    deviation: Tensor

    def __init__(self, mean: Sequence[float], deviation: Sequence[float]) -> None:
        super().__init__()
        for name, values in {"mean": mean, "deviation": deviation}.items():
            self.register_buffer(name, torch.tensor(values)[:, None, None], persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        """Normalise images; Shape (N, C, H, W), in and out."""
        return (images - self.mean) / self.deviation


def normalisation_layers(name: str) -> list[nn.Module]:
    """Return the layer of a `gleak.models.base.Normalised`, or no layer for "none"."""
    return [] if name == "none" else [Normalisation(*MEANS_AND_DEVIATIONS[name])]
