"""Gradients of a mini-batch's samples: found one by one, clipped, and joined in noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from gleak.core.errors import IncompatibleError
from gleak.local_training.base import LocalGradient
from gleak.models.interaction import interacting_layer
from gleak.models.sample_gradients import sample_gradients
from gleak.models.stochastic import sampling
from gleak.models.tracing import described

if TYPE_CHECKING:
    from gleak.defenses.fedcdp import FedCDP

VALUES = 2**24
"""How many values the gradients of the samples that are taken at once have together."""


class NoisyGradient(LocalGradient):
    """The mean of a mini-batch's clipped gradients with noise on their sum.

    Args:
        defense: the bound, and how strong the noise is.
    """

    def __init__(self, defense: FedCDP) -> None:
        self.defense = defense
        self.noise_multipliers: list[float] = []

    def __call__(
        self,
        model: nn.Module,
        parameters: dict[str, Tensor],
        inputs: Tensor,
        labels: Tensor,
        loss: str,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """See `LocalGradient.__call__`.

        Raises:
            IncompatibleError: a layer mixes the samples of the mini-batch.
        """
        check_layers(model, tuple(inputs.shape[1:]), self.defense)
        found = clipped_gradients(model, parameters, inputs, labels, loss, self.defense.clip)
        deviations = {
            name: self.defense.deviation(found.powers[name], total.numel())
            for name, total in found.sums.items()
        }
        self.noise_multipliers.append(self._multiplier(list(deviations.values())))
        noisy = {
            name: (total + deviations[name] * torch.randn(total.shape).to(total)) / len(labels)
            for name, total in found.sums.items()
        }
        return found.loss, noisy

    def _multiplier(self, deviations: list[float]) -> float:
        """Of all layers together: 1 / sqrt(sum_l (2C / s_l)^2), as Gaussian mechanisms compose.

        A sample that is exchanged for another moves the sum of a layer by 2C at most.
        """
        moved = 2 * self.defense.clip / torch.tensor(deviations, dtype=torch.float64)
        return float(1 / torch.linalg.vector_norm(moved))


def check_layers(model: nn.Module, shape: tuple[int, ...], defense: FedCDP) -> None:
    """Refuse a model in which samples have no gradients of their own.

    Args:
        model: in the mode that clients train it in.
        shape: of a sample.
        defense: named in the error.

    Raises:
        IncompatibleError: a layer mixes the samples of the mini-batch.
    """
    mixing = interacting_layer(model, shape)
    if mixing is not None:
        raise IncompatibleError(
            f"defense {defense}: {described(model, mixing)} computes with the whole mini-batch, "
            "so that no sample has a gradient of its own; choose a model without batch "
            "normalisation and the like"
        )


@dataclass(frozen=True)
class ClippedGradients:
    """What the samples of one mini-batch add up to.

    Args:
        loss: their mean loss.
        sums: for each parameter the sum of the clipped gradients, Shape (*shape).
        powers: for each parameter the sum of their squared lengths.
    """

    loss: Tensor
    sums: dict[str, Tensor]
    powers: dict[str, float]


def clipped_gradients(
    model: nn.Module,
    parameters: dict[str, Tensor],
    inputs: Tensor,
    labels: Tensor,
    loss: str,
    bound: float,
) -> ClippedGradients:
    """Shorten each sample's gradient of each parameter to a length, g / max(1, ||g|| / bound).

    As many samples are taken at once as `VALUES` allows; dropout draws a mask for each.

    Args:
        model: whose own parameters are left as they are.
        parameters: at which the gradients are taken, Shape (*shape).
        inputs: Shape (B, *shape).
        labels: Shape (B).
        loss: see `gleak.models.losses`.
        bound: the longest length (L2).
    """
    held = {name: value.detach() for name, value in parameters.items()}
    sums = {name: torch.zeros_like(value) for name, value in held.items()}
    powers, losses = dict.fromkeys(held, 0.0), []
    size = max(1, VALUES // sum(value.numel() for value in held.values()))
    with sampling(model, inputs):
        for some, told in zip(inputs.split(size), labels.split(size), strict=True):
            found, slopes = sample_gradients(model, held, some, told, loss)
            losses.append(found)
            for name, slope in slopes.items():
                lengths = torch.linalg.vector_norm(slope.flatten(1), dim=1)
                factors = 1 / (lengths / bound).clamp(min=1)
                sums[name] += torch.tensordot(factors, slope, dims=1)
                powers[name] += float((factors * lengths).square().sum())
    return ClippedGradients(torch.cat(losses).mean(), sums, powers)
