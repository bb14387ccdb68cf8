"""Base of the starts that are given values, slightly disturbed."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING

from typing_extensions import override

from gleak.core.spec import parameter
from gleak.matching.starts.base import StartSpec

if TYPE_CHECKING:
    from torch import Generator, Tensor


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
