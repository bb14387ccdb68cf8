"""Local training: plain gradient descent over mini-batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from gleak.models.losses import sample_losses

if TYPE_CHECKING:
    from gleak.clients.base import Loss


def mini_batches(samples: int, size: int, steps: int, shuffled: bool) -> list[Tensor]:
    """Positions of the samples of each step, pass after pass; random numbers are torch's own.

    Returns:
        One for each step, Shape (size).
    """
    passes = -(-steps * size // samples)
    orders = [torch.randperm(samples) if shuffled else torch.arange(samples) for _ in range(passes)]
    return list(torch.cat(orders).split(size)[:steps])


def gradients(
    model: nn.Module,
    parameters: dict[str, Tensor],
    inputs: Tensor,
    labels: Tensor,
    loss: Loss,
) -> dict[str, Tensor]:
    """Gradient of the mean loss over one batch; of a parameter without part in it, zero.

    Args:
        model: whose own parameters are left as they are.
        parameters: at which the gradient is taken; they require it.
        inputs: Shape (N, *shape).
        labels: Shape (N).
        loss: see `gleak.models.losses`.
    """
    with _drawing_masks(model):
        logits = functional_call(model, parameters, (inputs,))
    targets = functional.one_hot(labels, logits.shape[1]).to(logits.dtype)
    mean = sample_losses(loss, logits, targets).mean()
    found = torch.autograd.grad(mean, list(parameters.values()), materialize_grads=True)
    return dict(zip(parameters, found, strict=True))


def descend(
    model: nn.Module,
    inputs: Tensor,
    labels: Tensor,
    batches: Sequence[Tensor],
    lr: float,
    loss: Loss,
) -> dict[str, Tensor]:
    """The parameters after one step for each of the mini-batches; the model is left as it is."""
    parameters = {name: value.detach().clone() for name, value in model.named_parameters()}
    for batch in batches:
        attached = {name: value.requires_grad_() for name, value in parameters.items()}
        steps = gradients(model, attached, inputs[batch], labels[batch], loss)
        parameters = {name: attached[name].detach() - lr * steps[name] for name in attached}
    return parameters


@contextmanager
def _drawing_masks(model: nn.Module) -> Iterator[None]:
    """Dropout draws its masks, as in training; normalisation stays in evaluation mode."""
    dropouts = [layer for layer in model.modules() if isinstance(layer, nn.Dropout)]
    for layer in dropouts:
        layer.train()
    try:
        yield
    finally:
        for layer in dropouts:
            layer.eval()
