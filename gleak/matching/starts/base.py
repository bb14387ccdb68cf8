"""What every start provides."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar

from gleak.spec import Spec

if TYPE_CHECKING:
    from torch import Generator, Tensor


class StartSpec(Spec):
    """The dummy input an attack begins with."""

    kind: ClassVar[str] = "start"

    @abstractmethod
    def draw(self, shape: tuple[int, ...], generator: Generator) -> Tensor:
        """Dummy inputs of one victim.

        Args:
            shape: (N, C, H, W) or (N, F).
            generator: the victim's own stream, on the CPU so that every device starts alike.
        """
