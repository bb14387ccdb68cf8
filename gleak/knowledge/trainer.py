"""A network in training: what is trained with it, and one step of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from torch import Generator, Tensor, nn
from torch.optim import Optimizer

Losses = Mapping[str, Tensor]
"""By name, a number each; on the device of the network."""
SEPARATOR = ":"  # HDF5 takes it as part of a name
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
        found = {f"{MODULE}{SEPARATOR}{name}": value for name, value in self.state_dict().items()}
        for title, optimizer in self.optimizers.items():
            for index, values in optimizer.state_dict()["state"].items():
                prefix = f"{title}{SEPARATOR}{index}{SEPARATOR}"
                found |= {f"{prefix}{name}": value for name, value in values.items()}
        return found

    def resume(self, state: Mapping[str, Tensor]) -> None:
        """Go on from what `state` gave."""
        self.load_state_dict(_below(MODULE, state))
        for title, optimizer in self.optimizers.items():
            found: dict[int, dict[str, Tensor]] = {}
            for name, value in _below(title, state).items():
                index, _, key = name.partition(SEPARATOR)
                found.setdefault(int(index), {})[key] = value
            groups = optimizer.state_dict()["param_groups"]
            optimizer.load_state_dict({"state": found, "param_groups": groups})


def _below(title: str, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What is of one module or optimiser, by the rest of its name."""
    pairs = ((*name.partition(SEPARATOR), value) for name, value in state.items())
    return {rest: value for first, _, rest, value in pairs if first == title}


def descend(optimizer: Optimizer, loss: Tensor) -> None:
    """One step of an optimiser down a loss."""
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
