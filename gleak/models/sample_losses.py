"""Losses of single samples, and penalties that layers add to them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from gleak.core.lazy import torch

if TYPE_CHECKING:
    from gleak.models.layers import Penalised


def sample_losses(loss: str, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Compute the loss of each sample, without averaging.

    Soft labels are supported, so that labels can be optimised too.

    Args:
        loss: "cross_entropy", or "nll_raw": minus the raw logit of the label (MKOR's reference).
        logits: Shape (M, classes).
        targets: Shape (M, classes), rows that sum to one; one-hot for hard labels.

    Returns:
        Shape (M).
    """
    scores = torch.nn.functional.log_softmax(logits, dim=1) if loss == "cross_entropy" else logits
    return -(targets * scores).sum(1)


def penalised_layers(network: torch.nn.Module) -> list[Penalised]:
    """Return the layers of a network that add a penalty to the loss."""
    from gleak.models.layers import Penalised

    return [layer for layer in network.modules() if isinstance(layer, Penalised)]


@contextmanager
def penalties(network: torch.nn.Module) -> Iterator[list[torch.Tensor]]:
    """Collect the penalties of all forward passes through the network in the block.

    Code that computes a loss runs the forward pass in such a block and adds the yielded tensors,
    Shape (N) each; for most networks there are none. The penalty is part of the loss and not of a
    layer's derivative, as a layer does not know the weight of a sample in a mean, nor whether the
    differentiated value is a loss.

    Args:
        network: whose layers are called as modules, at any depth.
    """
    collected: list[torch.Tensor] = []

    def keep(layer: Penalised, given: tuple[Any, ...], _: torch.Tensor) -> None:
        collected.append(layer.penalty(given[0]))

    with ExitStack() as stack:
        for layer in penalised_layers(network):
            stack.enter_context(layer.register_forward_hook(keep))
        yield collected
