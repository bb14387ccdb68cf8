"""Base class of the optimisers with which clients train."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from gleak.core.lazy import torch
from gleak.core.spec import Spec

Moments = tuple["torch.Tensor", ...]
"""State of the optimiser for one parameter; each Shape (*shape)."""


class ClientOptimizer(Spec):
    """Optimiser that acts on every value by itself: a step is minus the rate times a direction.

    Directions are functions of tensors of any shape and can be differentiated twice, so that an
    attack differentiates through the same steps that a simulated client takes. They equal those of
    the optimiser of the same name in `torch.optim` up to rounding.

    Class attributes of subclasses:

    - ``linear``: True if directions are linear in the gradients and parameters of all steps so far.
    """

    kind: ClassVar[str] = "client_optimizer"
    linear: ClassVar[bool] = False

    @abstractmethod
    def initial(self, parameter: torch.Tensor) -> Moments:
        """Return the state before the first step of an optimiser, for a parameter (*shape)."""

    @abstractmethod
    def direction(
        self, parameter: torch.Tensor, gradient: torch.Tensor, moments: Moments, step: int
    ) -> tuple[torch.Tensor, Moments]:
        """Compute the direction of a step and the state after it.

        Args:
            parameter: at which the gradient was computed, Shape (*shape).
            gradient: Shape (*shape).
            moments: state before the step.
            step: number of steps that the optimiser has taken before.

        Returns:
            The direction, whose product with the learning rate is subtracted; and the state.
        """

    def first_gradient(self, parameter: torch.Tensor, direction: torch.Tensor) -> torch.Tensor:
        """Compute the gradient from the direction of the first step; of a nonlinear optimiser.

        It is plus or minus infinity for a direction that no gradient has.

        Args:
            parameter: at which the gradient was computed, Shape (*shape).
            direction: any shape that the parameter's can be broadcast to.
        """
        raise NotImplementedError


def root(square: torch.Tensor) -> torch.Tensor:
    """Compute a square root whose first two derivatives are finite at zero."""
    return (square + torch.finfo(square.dtype).tiny ** (2 / 3)).sqrt()
