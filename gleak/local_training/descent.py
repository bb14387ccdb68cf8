"""Local training: plain gradient descent over mini-batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from gleak.models.interaction import batch_slices
from gleak.models.losses import sample_losses
from gleak.models.parameters import trained_parameters
from gleak.models.penalties import penalties
from gleak.models.stochastic import sampling

if TYPE_CHECKING:
    from gleak.local_training.base import LocalGradient, Loss


def mini_batches(samples: int, size: int, steps: int, shuffled: bool) -> list[Tensor]:
    """Positions of the samples of each step, pass after pass; random numbers are torch's own.

    Args:
        samples: how many there are.
        size: of a mini-batch; where it does not divide them one may reach into the next pass.
        steps: how many mini-batches.
        shuffled: draw an order for every pass, not the samples' own.

    Returns:
        One for each step, Shape (size).
    """
    rounds = -(-steps * size // samples)
    orders = [torch.randperm(samples) if shuffled else torch.arange(samples) for _ in range(rounds)]
    return list(torch.cat(orders).split(size)[:steps])


def gradients(
    model: nn.Module,
    parameters: dict[str, Tensor],
    inputs: Tensor,
    labels: Tensor,
    loss: Loss,
    gradient: LocalGradient | None = None,
) -> dict[str, Tensor]:
    """Gradient of the mean loss over one batch; of a parameter without part in it, zero.

    Args:
        model: whose own parameters are left as they are.
        parameters: the trained ones, at which the gradient is taken; they require it.
        inputs: Shape (N, *shape).
        labels: Shape (N).
        loss: see `gleak.models.losses`.
        gradient: what is taken in its place, if a defence has something to put there.
    """
    return (gradient or _mean_slopes)(model, parameters, inputs, labels, loss)[1]


@dataclass(frozen=True)
class Descent:
    """Where some steps of gradient descent have led.

    Args:
        parameters: after the last step.
        mean_gradient: of the steps; exact, where the difference of parameters is rounded.
        losses: mean loss over each mini-batch, before its step; Shape (T).
    """

    parameters: dict[str, Tensor]
    mean_gradient: dict[str, Tensor]
    losses: Tensor


LocalDescent = Callable[[nn.Module, Tensor, Tensor], Descent]
"""From a model, inputs (N, *shape) and labels (N) to where a client's steps lead."""


def descend(
    model: nn.Module,
    inputs: Tensor,
    labels: Tensor,
    batches: Sequence[Tensor],
    lr: float,
    loss: Loss,
    gradient: LocalGradient | None = None,
) -> Descent:
    """One step for each of the mini-batches; the model's own parameters are left as they are.

    The stochastic layers of a model in evaluation mode, as it is broadcast, draw random numbers
    (see `gleak.models.stochastic`), but it normalises by its running statistics. One in training
    mode normalises by the batch, and its running statistics (its buffers) go along with the steps.

    Args:
        model: holds the parameters before the first step; frozen ones stay as they are.
        inputs: Shape (N, *shape).
        labels: Shape (N).
        batches: positions of each step's samples, one step at least; see `mini_batches`.
        lr: learning rate.
        loss: see `gleak.models.losses`.
        gradient: what is taken in place of each mini-batch's, if a defence has something to put
            there.
    """
    find = gradient or _mean_slopes
    parameters = {name: value.detach().clone() for name, value in trained_parameters(model).items()}
    sums = {name: torch.zeros_like(value) for name, value in parameters.items()}
    losses = []
    for batch in batches:
        attached = {name: value.requires_grad_() for name, value in parameters.items()}
        mean, slopes = find(model, attached, inputs[batch], labels[batch], loss)
        parameters = {name: attached[name].detach() - lr * slopes[name] for name in attached}
        sums = {name: sums[name] + slopes[name] for name in sums}
        losses.append(mean)
    mean_gradient = {name: value / len(batches) for name, value in sums.items()}
    return Descent(parameters, mean_gradient, torch.stack(losses))


def _mean_slopes(
    model: nn.Module,
    parameters: dict[str, Tensor],
    inputs: Tensor,
    labels: Tensor,
    loss: Loss,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Mean loss and its gradient; part by part, where samples have no part in each other's loss."""
    mean = inputs.new_zeros(())
    slopes = {name: torch.zeros_like(value) for name, value in parameters.items()}
    for part in batch_slices(model, inputs):
        share = len(labels[part]) / len(labels)
        loss_of_part = share * _mean_loss(model, parameters, inputs[part], labels[part], loss)
        mean += loss_of_part.detach()
        for name, slope in _slopes(loss_of_part, parameters).items():
            slopes[name] += slope
    return mean, slopes


def _mean_loss(
    model: nn.Module,
    parameters: dict[str, Tensor],
    inputs: Tensor,
    labels: Tensor,
    loss: Loss,
) -> Tensor:
    with sampling(model, inputs), penalties(model) as added:
        logits = functional_call(model, parameters, (inputs.clone(),))
    targets = functional.one_hot(labels, logits.shape[1]).to(logits.dtype)
    return sum(added, sample_losses(loss, logits, targets)).mean()


def _slopes(mean_loss: Tensor, parameters: dict[str, Tensor]) -> dict[str, Tensor]:
    found = torch.autograd.grad(mean_loss, list(parameters.values()), materialize_grads=True)
    return dict(zip(parameters, found, strict=True))
