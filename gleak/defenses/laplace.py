"""Additive Laplace noise."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from gleak.artifacts.encodings import Dense, Encoded
from gleak.defenses.base import DefenseSpec, Memory
from gleak.registry import register
from gleak.spec import knob

if TYPE_CHECKING:
    from torch import Generator, Tensor


@register("laplace")
class Laplace(DefenseSpec):
    """Independent Laplace noise on every value (CPL section 4.3).

    Given by its standard deviation, as the Gaussian is, so that equal numbers are equal power; the
    scale of the distribution is that over the square root of two.
    """

    std: float = knob(
        1e-2, "standard deviation of the noise", unit="weight", source="CPL Table 8", ge=0
    )

    def protect(
        self, update: dict[str, Tensor], generator: Generator, memory: Memory
    ) -> dict[str, Encoded]:
        """See `DefenseSpec.protect`."""
        return {
            name: Dense((value + self._noise(value, generator)).numpy()[None])
            for name, value in update.items()
        }

    def _noise(self, like: Tensor, generator: Generator) -> Tensor:
        """A difference of two exponentials is Laplace distributed."""
        scale = self.std / math.sqrt(2)
        first, second = (
            like.new_empty(like.shape).exponential_(generator=generator) for _ in range(2)
        )
        return scale * (first - second)
