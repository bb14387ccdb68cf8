"""Layers that several architectures share, and base classes of layers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional
from typing_extensions import override

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


class Penalised(nn.Module, ABC):
    """Base class of layers that add a penalty on their inputs to the loss."""

    @abstractmethod
    def penalty(self, inputs: Tensor) -> Tensor:
        """Compute the term added to each sample's loss, differentiable as often as the loss.

        Args:
            inputs: inputs of the layer; Shape (N, *shape).

        Returns:
            Shape (N).
        """


class GaussianSample(Penalised):
    """Samples of Gaussians with given means and deviations, b = mu + sigma eps.

    Deviations are softplus(s) of given values s (ours: exponentials of log-variances would overflow
    earlier). In training mode, samples are drawn from torch's global random state; in evaluation
    mode eps is zero, or ``noise`` (see `with_noise_as_input`). The penalty is beta times
    KL(N(mu, sigma^2) || N(0, 1)) in nats, summed over the k values of a sample (Kingma and Welling
    2014, Appendix B).

    Args:
        beta: weight of the divergence.
    """

    def __init__(self, beta: float) -> None:
        super().__init__()
        self.beta, self.spread = beta, 1.0
        self.noise: Tensor | None = None

    def forward(self, statistics: Tensor) -> Tensor:
        """Map means and values s of deviations, Shape (N, 2 k), to samples, Shape (N, k)."""
        means, deviations = _means_and_deviations(statistics)
        if self.training:
            return means + self.spread * deviations * torch.randn_like(means)
        return means if self.noise is None else means + deviations * self.noise

    @override
    def penalty(self, inputs: Tensor) -> Tensor:
        means, deviations = _means_and_deviations(inputs)
        squares = means.square() + deviations.square()
        return self.beta * ((squares - 1) / 2 - deviations.log()).sum(-1)


def _means_and_deviations(statistics: Tensor) -> tuple[Tensor, Tensor]:
    means, values = statistics.chunk(2, dim=-1)
    return means, functional.softplus(values)
