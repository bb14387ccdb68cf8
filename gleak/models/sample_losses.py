"""Losses of single samples, and penalties that layers add to them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import Tensor, nn
from torch.nn import functional


def sample_losses(loss: str, logits: Tensor, targets: Tensor) -> Tensor:
    """Compute the loss of each sample, without averaging.

    Soft labels are supported, so that labels can be optimised too.

    Args:
        loss: "cross_entropy", or "nll_raw": minus the raw logit of the label (MKOR's reference).
        logits: Shape (M, classes).
        targets: Shape (M, classes), rows that sum to one; one-hot for hard labels.

    Returns:
        Shape (M).
    """
    scores = functional.log_softmax(logits, dim=1) if loss == "cross_entropy" else logits
    return -(targets * scores).sum(1)


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


@contextmanager
def penalties(network: nn.Module) -> Iterator[list[Tensor]]:
    """Collect the penalties of all forward passes through the network in the block.

    Code that computes a loss runs the forward pass in such a block and adds the yielded tensors,
    Shape (N) each; for most networks there are none. The penalty is part of the loss and not of a
    layer's derivative, as a layer does not know the weight of a sample in a mean, nor whether the
    differentiated value is a loss.

    Args:
        network: whose layers are called as modules, at any depth.
    """
    collected: list[Tensor] = []

    def keep(layer: Penalised, given: tuple[Any, ...], _: Tensor) -> None:
        collected.append(layer.penalty(given[0]))

    with ExitStack() as stack:
        for layer in network.modules():
            if isinstance(layer, Penalised):
                stack.enter_context(layer.register_forward_hook(keep))
        yield collected
