"""Additive Laplace noise."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from typing_extensions import override

from gleak.core.registry import register
from gleak.defenses.noise import NoiseSpec

if TYPE_CHECKING:
    from torch import Generator, Tensor


@register("laplace")
class Laplace(NoiseSpec):
    """Independent Laplace noise on every value (CPL section 4.3).

    Given by its standard deviation, as the Gaussian is, so that equal numbers are equal power; the
    scale of the distribution is that over the square root of two. The units of ``std`` are those of
    `gaussian`; noise on updates that nothing bounds is not differential privacy in any of them.
    """

    source = "CPL section 4.3"

    @override
    def noise(self, like: Tensor, generator: Generator) -> Tensor:
        """A difference of two exponentials is Laplace distributed."""
        first, second = (
            like.new_empty(like.shape).exponential_(generator=generator) for _ in range(2)
        )
        return (first - second) / math.sqrt(2)
