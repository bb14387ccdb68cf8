"""What every optimiser of the matching engine provides."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from gleak.core.spec import Spec

if TYPE_CHECKING:
    from torch import Tensor


class OptimizerState(ABC):
    """The state of one optimiser over V independent problems, advanced together.

    Every row is a problem of its own: no row ever sees another. What one step leaves to the next
    are the attributes that are tensors or whole numbers.
    """

    def state(self) -> dict[str, Tensor]:
        """What one step leaves to the next, by attribute."""
        import torch

        return {
            name: torch.as_tensor(value)
            for name, value in vars(self).items()
            if isinstance(value, torch.Tensor | int)
        }

    def resume(self, state: Mapping[str, Tensor]) -> None:
        """Go on from what `state` gave."""
        for name, value in state.items():
            number = isinstance(getattr(self, name), int)
            setattr(self, name, int(value) if number else value)

    @abstractmethod
    def step(self, points: Tensor, gradients: Tensor) -> Tensor:
        """The next points, Shape (V, P), from these points and the gradients at them."""

    @abstractmethod
    def keep(self, rows: Tensor) -> None:
        """Go on with these problems alone; Shape (W), indices or a mask."""

    @abstractmethod
    def restart(self, rows: Tensor) -> None:
        """Forget what was learnt of these problems; Shape (V), a mask."""


class OptimizerSpec(Spec):
    """How points move; one iteration may be several evaluations."""

    kind: ClassVar[str] = "optimizer"

    @property
    def evaluations_per_iteration(self) -> int:
        """Evaluations of value and gradient that count as one iteration."""
        return 1

    def bytes_per_unknown(self) -> int:
        """Memory of the state for each unknown of one victim, in float32."""
        return 16

    @abstractmethod
    def begin(self, points: Tensor, iterations: int) -> OptimizerState:
        """Start on V problems at ``points``, Shape (V, P), with a budget of iterations."""
