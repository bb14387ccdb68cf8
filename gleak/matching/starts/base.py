"""Base classes of the starts of a search."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from typing_extensions import override

from gleak.core.spec import Spec, parameter

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


class NoisyStart(StartSpec):
    """Given values, each moved by a share of its way to a uniform value on [0, 1].

    Without noise a restart would repeat the attempt that was lost, and samples of one batch that
    begin alike and have the same label would get the same gradient at every step and stay alike.
    """

    noise: float = parameter(
        0.01,
        "share of the way to uniform random values",
        source="ours; so that restarts and samples of a batch differ",
        ge=0,
        le=1,
    )

    @abstractmethod
    def undisturbed(self, shape: tuple[int, ...], granted: Mapping[str, Tensor]) -> Tensor:
        """The values in [0, 1] before the noise; its shape broadcasts to ``shape``."""

    @override
    def draw(
        self, shape: tuple[int, ...], generator: Generator, granted: Mapping[str, Tensor]
    ) -> Tensor:
        """Nothing leaves [0, 1]."""
        import torch

        values = self.undisturbed(shape, granted)
        return values + self.noise * (torch.rand(shape, generator=generator) - values)
