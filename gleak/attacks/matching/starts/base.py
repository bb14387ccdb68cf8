"""Base classes of the starts of a search."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from typing_extensions import override

from gleak.core.lazy import torch
from gleak.core.spec import Spec, parameter

if TYPE_CHECKING:
    from gleak.data.base import DatasetSpec


class StartSpec(Spec):
    """First dummy samples of a search."""

    kind: ClassVar[str] = "start"

    @property
    def grants(self) -> frozenset[str]:
        """Names of the grants that the start uses (see `gleak.artifacts.granted`)."""
        return frozenset()

    def check(self, dataset: DatasetSpec) -> None:
        """Check that the start can be drawn for the samples of a dataset.

        Raises:
            IncompatibleError: names the start and what does not fit it.
        """

    @abstractmethod
    def draw(
        self,
        shape: tuple[int, ...],
        generator: torch.Generator,
        granted: Mapping[str, torch.Tensor],
    ) -> torch.Tensor:
        """Draw the dummy samples of one victim.

        Args:
            shape: (N, C, H, W) or (N, F).
            generator: random stream of the victim, on the CPU so that every device draws the same.
            granted: by grant name, what this victim's setting grants, of those in `grants`.
        """


class NoisyStart(StartSpec):
    """Base class of starts at given values, moved slightly towards uniform values on [0, 1].

    Without noise a restart would repeat the failed attempt, and samples of one batch with the same
    start and the same label would have the same gradient in every step and remain equal.
    """

    noise: float = parameter(
        0.01,
        "share of the way to uniform random values",
        source="ours; so that restarts and samples of a batch differ",
        ge=0,
        le=1,
    )

    @abstractmethod
    def undisturbed(
        self, shape: tuple[int, ...], granted: Mapping[str, torch.Tensor]
    ) -> torch.Tensor:
        """Return the values in [0, 1] before the noise; they broadcast to ``shape``."""

    @override
    def draw(
        self,
        shape: tuple[int, ...],
        generator: torch.Generator,
        granted: Mapping[str, torch.Tensor],
    ) -> torch.Tensor:
        """Draw the disturbed values, which remain in [0, 1]."""

        values = self.undisturbed(shape, granted)
        drawn = torch.rand(shape, generator=generator, dtype=torch.float32)
        return values + self.noise * (drawn - values)
