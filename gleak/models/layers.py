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
    """The activation of that name (see `gleak.models.base.Activation`)."""
    return ACTIVATIONS[name]()


def dropout_layers(probability: float) -> list[nn.Module]:
    """The layer that zeroes each value with this probability; none for zero."""
    return [nn.Dropout(probability)] if probability else []


MEANS_AND_DEVIATIONS = {
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "cifar10": ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
}
"""Of intensities in the training sets, for each colour."""


class Normalisation(nn.Module):
    """Images less the mean of each channel, in its standard deviations.

    The two belong to the architecture and not to its state, so files of parameters hold neither.

    Args:
        mean: of each channel, of intensities in [0, 1].
        deviation: likewise.
    """

    mean: Tensor
    deviation: Tensor

    def __init__(self, mean: Sequence[float], deviation: Sequence[float]) -> None:
        super().__init__()
        for name, values in {"mean": mean, "deviation": deviation}.items():
            self.register_buffer(name, torch.tensor(values)[:, None, None], persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        """Shape (N, C, H, W), in and out."""
        return (images - self.mean) / self.deviation


def normalisation_layers(name: str) -> list[nn.Module]:
    """The layer of that name (see `gleak.models.base.Normalised`); no layer for "none"."""
    return [] if name == "none" else [Normalisation(*MEANS_AND_DEVIATIONS[name])]
