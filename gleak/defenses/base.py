"""What every defence spec provides."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar

from gleak.spec import Spec

if TYPE_CHECKING:
    from torch import Generator, Tensor

    from gleak.artifacts.encodings import Encoded


class DefenseSpec(Spec):
    """What a client does to its update before sending it."""

    kind: ClassVar[str] = "defense"

    @abstractmethod
    def protect(self, update: dict[str, Tensor], generator: Generator) -> dict[str, Encoded]:
        """One client's update as sent.

        Args:
            update: for each parameter, Shape (R, *shape).
            generator: this victim's own random stream.

        Returns:
            The same parameters in the form they travel, victim axis of size 1 in front.
        """
