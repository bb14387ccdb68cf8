"""A start of independent normal values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from typing_extensions import override

from gleak.core.registry import register
from gleak.matching.starts.base import StartSpec

if TYPE_CHECKING:
    from torch import Generator, Tensor


@register("normal")
class Normal(StartSpec):
    """Mean 0 and deviation 1, as DLG starts."""

    @override
    def draw(
        self, shape: tuple[int, ...], generator: Generator, granted: Mapping[str, Tensor]
    ) -> Tensor:
        import torch

        return torch.randn(shape, generator=generator)
