"""A start of independent uniform values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from typing_extensions import override

from gleak.core.registry import register
from gleak.matching.starts.base import StartSpec

if TYPE_CHECKING:
    from torch import Generator, Tensor


@register("uniform")
class Uniform(StartSpec):
    """Every value uniform on [0, 1]."""

    @override
    def draw(
        self, shape: tuple[int, ...], generator: Generator, granted: Mapping[str, Tensor]
    ) -> Tensor:
        import torch

        return torch.rand(shape, generator=generator)
