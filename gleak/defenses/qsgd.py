"""Stochastic quantisation whose mean is the value."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

from typing_extensions import override

from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.defenses.quantizer import QuantizerSpec

if TYPE_CHECKING:
    from torch import Generator, Tensor


@register("qsgd")
class QSGD(QuantizerSpec):
    """Every value is rounded up or down at random, so that it is right on average (QSGD).

    A value that lies at l + p levels, 0 <= p < 1, is sent as l + 1 with probability p and as l
    otherwise (ROG Equation 7). With the Euclidean norm of Alistarh et al. nearly all values of a
    large tensor lie below the first level, and what is sent is sparse. ROG's text leaves the norm
    open and its code takes the largest magnitude, which is the default here.
    """

    source = "Alistarh et al. 2017 section 3.1; ROG Equations 6 and 7, section 4.3"

    norm: Literal["max", "l2"] = parameter(
        "max",
        "what the highest level is worth: the largest magnitude, or the length of g",
        source="ROG's code; Alistarh et al. 2017 (l2)",
    )

    @property
    @override
    def order(self) -> float:
        return {"max": math.inf, "l2": 2.0}[self.norm]

    @override
    def rounded(self, levels: Tensor, generator: Generator) -> Tensor:
        below = levels.floor()
        drawn = levels.new_empty(levels.shape).uniform_(generator=generator)
        return below + (drawn < levels - below)
