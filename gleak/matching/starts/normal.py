"""A start of independent normal values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from gleak.matching.starts.base import StartSpec
from gleak.registry import register

if TYPE_CHECKING:
    from torch import Generator, Tensor


@register("normal")
class Normal(StartSpec):
    """Mean 0 and deviation 1, as DLG starts."""

    def draw(
        self, shape: tuple[int, ...], generator: Generator, granted: Mapping[str, Tensor]
    ) -> Tensor:
        """See `StartSpec.draw`."""
        import torch

        return torch.randn(shape, generator=generator)
