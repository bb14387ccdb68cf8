"""Base classes of the optimizers of a search."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from gleak.core.spec import Spec

if TYPE_CHECKING:
    from torch import Tensor


class OptimizerState(ABC):
    """State of an optimizer over V independent problems, advanced together.

    Each row is a separate problem, and no row influences another. Attributes that are tensors or
    integers are the state that one step passes to the next.
    """

    def state(self) -> dict[str, Tensor]:
        """Return the state that one step passes to the next, by attribute."""
        import torch

        return {
            name: torch.as_tensor(value)
            for name, value in vars(self).items()
            if isinstance(value, torch.Tensor | int)
        }

    def resume(self, state: Mapping[str, Tensor]) -> None:
        """Restore the state that `state` returned."""
        for name, value in state.items():
            number = isinstance(getattr(self, name), int)
            setattr(self, name, int(value) if number else value)

    @abstractmethod
    def step(self, points: Tensor, gradients: Tensor) -> Tensor:
        """Compute the next points from the present ones and their gradients; Shape (V, P) each."""

    @abstractmethod
    def keep(self, rows: Tensor) -> None:
        """Drop all problems except these; Shape (W), indices or a mask."""

    @abstractmethod
    def restart(self, rows: Tensor) -> None:
        """Reset the state of these problems; Shape (V), a mask."""


class OptimizerSpec(Spec):
    """Rule by which points move; one iteration may be several evaluations."""

    kind: ClassVar[str] = "optimizer"

    @property
    def evaluations_per_iteration(self) -> int:
        """Number of evaluations of value and gradient that count as one iteration."""
        return 1

    def bytes_per_unknown(self) -> int:
        """Return the memory of the state for each unknown of one victim, in float32."""
        return 16

    @abstractmethod
    def begin(self, points: Tensor, iterations: int) -> OptimizerState:
        """Initialise the state for V problems.

        Args:
            points: the first ones; Shape (V, P).
            iterations: the budget.
        """
