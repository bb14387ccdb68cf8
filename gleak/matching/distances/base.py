"""What every distance provides, and the gradients it measures."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Protocol

from gleak.core.spec import Spec

if TYPE_CHECKING:
    from torch import Tensor


class Piece(Protocol):
    """The dummy gradient of one parameter beside the observed one, for V victims."""

    @property
    def name(self) -> str:
        """Of the parameter."""

    def within(self, sent: Tensor) -> Piece:
        """The same gradients at these entries alone, zero elsewhere; Shape (V, *shape), a mask."""

    def squared_distance(self) -> Tensor:
        """Sum of squared differences; Shape (V)."""

    def sign_distance(self, gain: float) -> Tensor:
        """Sum of squared differences to tanh(gain g) of the dummy gradient g; Shape (V)."""

    def inner(self) -> Tensor:
        """Inner product of dummy and observed gradient; Shape (V)."""

    def squared_norm(self) -> Tensor:
        """Squared norm of the dummy gradient; Shape (V)."""

    def target_squared_norm(self) -> Tensor:
        """Squared norm of the observed gradient; Shape (V)."""


class DistanceSpec(Spec):
    """How far the dummy gradient is from the observed one."""

    kind: ClassVar[str] = "distance"

    @abstractmethod
    def measure(self, pieces: Sequence[Piece]) -> Tensor:
        """The distance over all parameters; Shape (V), zero for equal gradients."""

    @abstractmethod
    def scale(self, observed: Sequence[Tensor]) -> Tensor:
        """The distance of a gradient that is zero everywhere; Shape (V), positive.

        ``observed`` holds what was received for each parameter, Shape (V, *shape).

        The engine works with distances relative to it, so that a client with a small gradient (a
        confident model) is matched as closely as one with a large gradient.
        """


def total(values: Sequence[Tensor]) -> Tensor:
    """Sum over parameters; Shape (V)."""
    first, *rest = values
    return sum(rest, start=first)
