"""Losses of single samples, and penalties that layers add to them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import Tensor, nn
from torch.nn import functional


def sample_losses(loss: str, logits: Tensor, targets: Tensor) -> Tensor:
    """Loss of every sample, not yet averaged.

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
    """A layer whose inputs cost something themselves."""

    @abstractmethod
    def penalty(self, inputs: Tensor) -> Tensor:
        """What is added to each sample's loss, differentiable as often as the loss is.

        Args:
            inputs: what the layer is given; Shape (N, *shape).

        Returns:
            Shape (N).
        """


@contextmanager
def penalties(network: nn.Module) -> Iterator[list[Tensor]]:
    """The penalties of all passes through the network in the block, Shape (N) each.

    Whoever computes a loss of samples takes the pass to the logits in such a block and adds what
    it yields, which is nothing of most networks. It is a part of the loss, not of a layer's
    derivative: a layer cannot know which share a sample has in a mean, nor whether what is
    differentiated is a loss.

    Args:
        network: whose layers are called as modules; of any depth.
    """
    found: list[Tensor] = []

    def keep(layer: Penalised, given: tuple[Any, ...], _: Tensor) -> None:
        found.append(layer.penalty(given[0]))

    with ExitStack() as stack:
        for layer in network.modules():
            if isinstance(layer, Penalised):
                stack.enter_context(layer.register_forward_hook(keep))
        yield found
