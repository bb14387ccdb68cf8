"""What every start provides."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from gleak.core.spec import Spec

if TYPE_CHECKING:
    from torch import Generator, Tensor

    from gleak.data.base import DatasetSpec


class StartSpec(Spec):
    """The dummy input an attack begins with."""

    kind: ClassVar[str] = "start"

    @property
    def grants(self) -> frozenset[str]:
        """Names of the grants it begins with (see `gleak.artifacts.granted`)."""
        return frozenset()

    def check(self, dataset: DatasetSpec) -> None:
        """Refuse samples it cannot make a start of.

        Raises:
            IncompatibleError: names the start and what does not fit it.
        """

    @abstractmethod
    def draw(
        self, shape: tuple[int, ...], generator: Generator, granted: Mapping[str, Tensor]
    ) -> Tensor:
        """Dummy inputs of one victim.

        Args:
            shape: (N, C, H, W) or (N, F).
            generator: the victim's own stream, on the CPU so that every device starts alike.
            granted: by grant name, what this victim's setting grants, of those in `grants`.
        """
