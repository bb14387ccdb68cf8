"""Clipped gradients of single samples, and their noisy mean, for Fed-CDP."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from typing_extensions import override

from gleak.clients.gradient_descent import LocalGradient
from gleak.core.errors import IncompatibleError
from gleak.core.lazy import torch
from gleak.models.batching import interacting_layer
from gleak.models.differentiation import sample_gradients
from gleak.models.stochastic import stochastic_training_mode
from gleak.models.tracing import describe_layer

if TYPE_CHECKING:
    from gleak.artifacts.protocol import Loss
    from gleak.defenses.differential_privacy import FedCDP

MAX_VALUES = 2**24
"""Number of gradient values, over all samples, that are computed at once."""


class NoisyGradient(LocalGradient):
    """Mean of a mini-batch's clipped gradients, with noise added to their sum.

    Args:
        defense: gives the clipping bound and the strength of the noise.
    """

    def __init__(self, defense: FedCDP) -> None:
        self.defense = defense
        self.noise_multipliers: list[float] = []

    @override
    def __call__(
        self,
        model: torch.nn.Module,
        parameters: dict[str, torch.Tensor],
        inputs: torch.Tensor,
        labels: torch.Tensor,
        loss: Loss,
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        check_layers(model, tuple(inputs.shape[1:]), self.defense)
        clipped = clipped_gradients(model, parameters, inputs, labels, loss, self.defense.clip)
        deviations = {
            name: self.defense.deviation(clipped.powers[name], total.numel())
            for name, total in clipped.sums.items()
        }
        self.noise_multipliers.append(self._multiplier(list(deviations.values())))
        noisy = {
            name: (total + deviations[name] * torch.randn(total.shape).to(total)) / len(labels)
            for name, total in clipped.sums.items()
        }
        return clipped.loss, noisy

    def _multiplier(self, deviations: list[float]) -> float:
        """Compute the noise multiplier of all layers, 1 / sqrt(sum_l (2C / s_l)^2).

        This is the composition of Gaussian mechanisms; replacing a sample changes the sum of a
        layer by at most 2C.
        """
        ratios = 2 * self.defense.clip / torch.tensor(deviations, dtype=torch.float64)
        return float(1 / torch.linalg.vector_norm(ratios))


def check_layers(model: torch.nn.Module, shape: tuple[int, ...], defense: FedCDP) -> None:
    """Raise if samples of a model have no gradients of their own.

    Args:
        model: in the mode in which clients train it.
        shape: shape of a sample.
        defense: named in the error.

    Raises:
        IncompatibleError: a layer mixes the samples of the mini-batch.
    """
    mixing = interacting_layer(model, shape)
    if mixing is not None:
        raise IncompatibleError(
            f"defense {defense}: {describe_layer(model, mixing)} computes with the whole "
            "mini-batch, "
            "so that no sample has a gradient of its own; choose a model without batch "
            "normalisation and the like"
        )


@dataclass(frozen=True)
class ClippedGradients:
    """Sums over the clipped gradients of one mini-batch.

    Args:
        loss: mean loss of the samples.
        sums: sum of the clipped gradients by parameter, Shape (*shape).
        powers: sum of their squared L2 norms by parameter.
    """

    loss: torch.Tensor
    sums: dict[str, torch.Tensor]
    powers: dict[str, float]


def clipped_gradients(
    model: torch.nn.Module,
    parameters: dict[str, torch.Tensor],
    inputs: torch.Tensor,
    labels: torch.Tensor,
    loss: Loss,
    bound: float,
) -> ClippedGradients:
    """Clip each sample's gradient of each parameter to an L2 norm, g / max(1, ||g|| / bound).

    Samples are processed in chunks of `MAX_VALUES` gradient values; dropout draws a mask for each
    sample.

    Args:
        model: its own parameters are not changed.
        parameters: parameters at which gradients are computed, Shape (*shape).
        inputs: Shape (B, *shape).
        labels: Shape (B).
        loss: see `gleak.models.sample_losses`.
        bound: largest norm.
    """
    detached = {name: value.detach() for name, value in parameters.items()}
    sums = {name: torch.zeros_like(value) for name, value in detached.items()}
    powers, losses = dict.fromkeys(detached, 0.0), []
    size = max(1, MAX_VALUES // sum(value.numel() for value in detached.values()))
    with stochastic_training_mode(model, inputs):
        for x, y in zip(inputs.split(size), labels.split(size), strict=True):
            sample_losses, gradients = sample_gradients(model, detached, x, y, loss)
            losses.append(sample_losses)
            for name, gradient in gradients.items():
                norms = torch.linalg.vector_norm(gradient.reshape(len(gradient), -1), dim=1)
                factors = 1 / (norms / bound).clamp(min=1)
                sums[name] += torch.tensordot(factors, gradient, dims=1)
                powers[name] += float((factors * norms).square().sum())
    return ClippedGradients(torch.cat(losses).mean(), sums, powers)
