"""A network in training: what is trained with it, and one step of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from torch import Generator, Tensor, nn
from torch.optim import Optimizer

from gleak.runtime.checkpointing import optimizer_state, resume_optimizer, strip_prefix

Losses = Mapping[str, Tensor]
"""By name, a number each; on the device of the network."""
MODULE = "module"


class Trainer(nn.Module, ABC):
    """A network and all that its training needs; as a module it holds whatever has parameters.

    Args:
        network: what is trained.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        self.optimizers: dict[str, Optimizer] = {}

    @abstractmethod
    def learn(self, images: Tensor, labels: Tensor, generator: Generator) -> Losses:
        """One step of training.

        Args:
            images: of the public dataset, Shape (M, C, H, W) in [0, 1].
            labels: theirs, Shape (M), class indices.
            generator: what the step draws its random numbers from, on the CPU.
        """

    def state(self) -> dict[str, Tensor]:
        """All that one step leaves to the next, by a name of its own."""
        found = {f"{MODULE}.{name}": value for name, value in self.state_dict().items()}
        for title, optimizer in self.optimizers.items():
            moments = optimizer_state(optimizer)
            found |= {f"{title}.{name}": value for name, value in moments.items()}
        return found

    def resume(self, state: Mapping[str, Tensor]) -> None:
        """Go on from what `state` gave; of a larger state the rest is left alone."""
        self.load_state_dict(strip_prefix(MODULE, state))
        for title, optimizer in self.optimizers.items():
            resume_optimizer(optimizer, strip_prefix(title, state))


def descend(optimizer: Optimizer, loss: Tensor) -> None:
    """One step of an optimiser down a loss."""
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
