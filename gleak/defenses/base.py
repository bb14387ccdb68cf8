"""What every defence spec provides."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar

from gleak.spec import Spec

if TYPE_CHECKING:
    from torch import Generator, Tensor, nn

    from gleak.artifacts.encodings import Encoded

Memory = dict[str, "Tensor"]
"""By parameter, what a client has not sent yet; Shape (*shape)."""


class DefenseSpec(Spec):
    """What a client does to its update before sending it."""

    kind: ClassVar[str] = "defense"

    def with_samples(
        self, update: dict[str, Tensor], model: nn.Module, inputs: Tensor, labels: Tensor
    ) -> dict[str, Tensor]:
        """What becomes of an update while the client has its samples at hand; then see `protect`.

        Args:
            update: for each parameter, Shape (R, *shape).
            model: holds the broadcast parameters; left as it is.
            inputs: Shape (N, *shape).
            labels: Shape (N).

        Returns:
            The same parameters, Shape (R, *shape).
        """
        return update

    @abstractmethod
    def protect(
        self, update: dict[str, Tensor], generator: Generator, memory: Memory
    ) -> dict[str, Encoded]:
        """One client's update as sent.

        Args:
            update: for each parameter, Shape (R, *shape).
            generator: this client's own random stream.
            memory: what this client kept back in earlier rounds, changed in place; empty at first.

        Returns:
            The same parameters in the form they travel, victim axis of size 1 in front.
        """
