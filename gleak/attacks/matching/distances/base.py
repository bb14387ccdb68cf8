"""Base classes of the distances, and of the pairs of gradients that they measure."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Protocol

from gleak.core.lazy import torch
from gleak.core.spec import Spec

if TYPE_CHECKING:
    from gleak.attacks.matching.pieces import FormedPiece


class Pair(Protocol):
    """Dummy gradient paired with the observed one, for V victims."""

    @property
    def entries(self) -> int:
        """Number of values, whatever was sent of them."""

    def unlikelihood(self) -> torch.Tensor:
        """Compute minus the logarithm of the likelihood of what was sent; Shape (V)."""

    def squared_distance(self) -> torch.Tensor:
        """Compute the sum of squared differences; Shape (V)."""

    def sign_distance(self, gain: float) -> torch.Tensor:
        """Compute the sum of squared differences to tanh(gain x dummy gradient); Shape (V)."""

    def inner(self) -> torch.Tensor:
        """Compute the inner product of dummy and observed gradient; Shape (V)."""

    def squared_norm(self) -> torch.Tensor:
        """Compute the squared norm of the dummy gradient; Shape (V)."""

    def target_squared_norm(self) -> torch.Tensor:
        """Compute the squared norm of the observed gradient; Shape (V)."""


class Piece(Pair, Protocol):
    """Pair of the gradients of one parameter."""

    @property
    def name(self) -> str:
        """Name of the parameter."""

    def formed(self) -> FormedPiece:
        """Return the pair with a dummy gradient that is materialised."""

    def within(self, sent: torch.Tensor) -> Piece:
        """Return both gradients with all entries outside a mask set to zero.

        Args:
            sent: the mask; Shape (V, *shape).
        """


class DistanceSpec(Spec):
    """Distance between the dummy gradient and the observed one."""

    kind: ClassVar[str] = "distance"

    reads_codes: ClassVar[bool] = False
    """True if the distance depends on the code in which the gradient was sent."""

    @abstractmethod
    def measure(self, pieces: Sequence[Pair]) -> torch.Tensor:
        """Compute the distance over all parameters; Shape (V), zero for equal gradients."""

    @abstractmethod
    def scale(self, observed: Sequence[torch.Tensor]) -> torch.Tensor:
        """Compute the distance of a zero gradient from the observed one; Shape (V), positive.

        The engine divides distances by it, so that a client with a small gradient (a confident
        model) is matched as closely as one with a large gradient.

        Args:
            observed: gradient of each parameter, Shape (V, *shape).
        """


def total(values: Sequence[torch.Tensor]) -> torch.Tensor:
    """Sum values over parameters; Shape (V)."""
    first, *rest = values
    return sum(rest, start=first)
