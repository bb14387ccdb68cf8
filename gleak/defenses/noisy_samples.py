"""Gradients of a mini-batch's samples: found one by one, clipped, and joined in noise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap

from gleak.defenses.base import LocalGradient
from gleak.errors import FitError
from gleak.models.draws import drawing
from gleak.models.losses import sample_losses
from gleak.models.penalties import penalties

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
            FitError: a layer mixes the samples of the mini-batch.
        """
        check_layers(model, self.defense)
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


def check_layers(model: nn.Module, defense: FedCDP) -> None:
    """Refuse a model in which samples have no gradients of their own.

    Raises:
        FitError: a layer mixes the samples of the mini-batch.
    """
    for name, layer in model.named_modules():
        normalises = isinstance(layer, nn.modules.batchnorm._BatchNorm)
        if normalises and (layer.training or layer.running_mean is None):
            raise FitError(
                f"defense {defense}: layer {name!r} normalises by the mini-batch, so that no "
                "sample has a gradient of its own; choose a model without batch normalisation"
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
    find = _each_sample(model, loss)
    sums = {name: torch.zeros_like(value) for name, value in held.items()}
    powers, losses = dict.fromkeys(held, 0.0), []
    size = max(1, VALUES // sum(value.numel() for value in held.values()))
    with drawing(model):
        for some, told in zip(inputs.split(size), labels.split(size), strict=True):
            slopes, found = find(held, some, told)
            losses.append(found)
            for name, slope in slopes.items():
                lengths = torch.linalg.vector_norm(slope.flatten(1), dim=1)
                factors = 1 / (lengths / bound).clamp(min=1)
                sums[name] += torch.tensordot(factors, slope, dims=1)
                powers[name] += float((factors * lengths).square().sum())
    return ClippedGradients(torch.cat(losses).mean(), sums, powers)


def _each_sample(
    model: nn.Module, loss: str
) -> Callable[[dict[str, Tensor], Tensor, Tensor], tuple[dict[str, Tensor], Tensor]]:
    """From parameters, inputs (B, *shape) and labels (B) to gradients (B, *shape), losses (B)."""
    of_one = grad_and_value(partial(_loss_of_sample, model, loss))
    return vmap(of_one, in_dims=(None, 0, 0), randomness="different")


def _loss_of_sample(
    model: nn.Module, loss: str, parameters: dict[str, Tensor], sample: Tensor, label: Tensor
) -> Tensor:
    with penalties(model) as added:
        logits = functional_call(model, parameters, (sample[None],))
    classes = torch.arange(logits.shape[1], device=logits.device)
    losses = sample_losses(loss, logits, (classes == label).to(logits.dtype)[None])
    return sum(added, losses)[0]
