"""Deterministic uniform quantisation."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from typing_extensions import override

from gleak.core.registry import register
from gleak.defenses.quantizer import QuantizerSpec

if TYPE_CHECKING:
    from torch import Generator, Tensor


@register("quantize")
class Quantize(QuantizerSpec):
    """Every value is rounded to the nearest of equally spaced levels up to the largest magnitude.

    The error is at most half a level, and values below half a level are not told from zero: with
    three bits those below a sixth of the largest. See `gleak.defenses.quantizer.QuantizerSpec`.
    """

    source = "ROG Equation 6, Example 2, section 4.3"

    @property
    @override
    def order(self) -> float:
        return math.inf

    @override
    def rounded(self, levels: Tensor, generator: Generator) -> Tensor:
        """The nearest, of two as near the even one."""
        return levels.round()
