"""Layers of models that torch lacks.

They are subclasses of `torch.nn.Module`, so this module loads torch: specs import it in functions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional


class Normalisation(nn.Module):
    """Normalisation of images in [0, 1] by mean and standard deviation of each channel.

    Both belong to the architecture and not to its state, so parameter files contain neither.
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


CEILING = 0.01
"""Largest output of a planted layer's neurons with sparse bins.

The gradients of its weights, relative to the weights, are larger for a lower one: too low, and a
step moves the bins; too high, and the difference of weights that a client sends is rounded away.
"""


KERNEL = 3
"""Side of the kernels before a planted layer."""


class PlantedLayer(nn.Module):
    """Base class of samples plus a dense network of inputs that are computed from them.

    ``inputs`` are the values that enter, ``values`` those of a sample.
    """

    def __init__(self, inputs: int, values: int, bins: int, activation: str) -> None:
        super().__init__()
        self.enter = nn.Linear(inputs, bins)
        self.activation = nn.ReLU() if activation == "relu" else nn.Hardtanh(0, CEILING)
        self.leave = nn.Linear(bins, values)

    @property
    def is_sparse(self) -> bool:
        """True if a neuron is active between two bounds only."""
        return isinstance(self.activation, nn.Hardtanh)

    def inputs_of(self, samples: Tensor) -> Tensor:
        """Compute what enters; Shape (N, *shape) to (N, ...)."""
        return samples

    def forward(self, samples: Tensor) -> Tensor:
        """Map samples to samples; Shape (N, *shape), in and out."""
        inputs = self.inputs_of(samples).flatten(1)
        added: Tensor = self.leave(self.activation(self.enter(inputs)))
        return samples + added.view_as(samples)


class PlantedDense(PlantedLayer):
    """Planted layer whose inputs are the samples (see `gleak.models.planted`)."""

    def __init__(self, values: int, bins: int, activation: str) -> None:
        super().__init__(values, values, bins, activation)


class PlantedKernels(PlantedLayer):
    """Planted layer behind a convolution (see `gleak.models.planted_kernels`).

    The convolution has ``groups`` of C + 1 channels for images of C: as many as those of an image,
    and one more.
    """

    def __init__(self, shape: tuple[int, ...], groups: int, bins: int, activation: str) -> None:
        channels, height, width = shape
        outputs, pixels = groups * (channels + 1), height * width
        super().__init__(outputs * pixels, channels * pixels, bins, activation)
        self.groups = groups
        self.kernels = nn.Conv2d(channels, outputs, KERNEL, padding=KERNEL // 2)

    def inputs_of(self, samples: Tensor) -> Tensor:
        outputs: Tensor = self.kernels(samples)
        return outputs


class Penalised(nn.Module, ABC):
    """Base class of layers that add a penalty on their inputs to the loss."""

    @abstractmethod
    def penalty(self, inputs: Tensor) -> Tensor:
        """Compute the term added to each sample's loss, differentiable as often as the loss.

        Shapes: from (N, *shape), the inputs of the layer, to (N).
        """


class GaussianSample(Penalised):
    """Samples of Gaussians with given means and deviations, b = mu + sigma eps.

    Deviations are softplus(s) of given values s (ours: exponentials of log-variances would overflow
    earlier). In training mode, samples are drawn from torch's global random state; in evaluation
    mode eps is zero, or ``noise`` (see `with_noise_as_input`). The penalty is beta times
    KL(N(mu, sigma^2) || N(0, 1)) in nats, summed over the k values of a sample (Kingma and Welling
    2014, Appendix B).
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

    def penalty(self, inputs: Tensor) -> Tensor:
        means, deviations = _means_and_deviations(inputs)
        squares = means.square() + deviations.square()
        return self.beta * ((squares - 1) / 2 - deviations.log()).sum(-1)


def _means_and_deviations(statistics: Tensor) -> tuple[Tensor, Tensor]:
    means, values = statistics.chunk(2, dim=-1)
    return means, functional.softplus(values)


class HeldReLU(nn.Module):
    """ReLU that keeps the activities of its first inputs, so that a network is smooth.

    Attributes:
        activities: True for values that pass, of the shape of the inputs.
        inputs, outputs: of the last call.
    """

    activities: torch.Tensor
    is_held = False

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if not self.is_held:
            self.activities, self.is_held = inputs.detach() > 0, True
        self.inputs, self.outputs = inputs, inputs * self.activities
        return self.outputs

    @classmethod
    def in_place(cls, network: nn.Module) -> list[HeldReLU]:
        """Exchange all ReLUs of a network, and return the new layers."""
        found = [name for name, layer in network.named_modules() if type(layer) is nn.ReLU]
        for name in found:
            network.set_submodule(name, cls())
        return [layer for layer in network.modules() if isinstance(layer, cls)]


class Residual(nn.Module):
    """Sum of a body and a shortcut of the same inputs (He et al. 2016).

    No layer overwrites the outputs of another, so that gradients can be split layer by layer (see
    `gleak.attacks.matching.gradients`).
    """

    def __init__(self, body: nn.Module, shortcut: nn.Module) -> None:
        super().__init__()
        self.body, self.shortcut = body, shortcut

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.body(inputs) + self.shortcut(inputs)
        return outputs


class ActivatedResidual(nn.Module):
    """Activated sum of a body and a shortcut of the same inputs.

    The layers of the body are direct children, as in torchvision's blocks. None overwrites the
    outputs of another (see `Residual`).
    """

    def __init__(self, body: Mapping[str, nn.Module], shortcut: nn.Module, after: nn.Module):
        super().__init__()
        for name, layer in body.items():
            self.add_module(name, layer)
        self.downsample, self.activation = shortcut, after

    def forward(self, inputs: Tensor) -> Tensor:
        *body, shortcut, after = self.children()
        values = inputs
        for layer in body:
            values = layer(values)
        outputs: Tensor = after(values + shortcut(inputs))
        return outputs
