"""Sparsification: only the largest values are sent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import override

from gleak.artifacts.encodings import Encoded
from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.defenses.base import DefenseSpec, Memory
from gleak.defenses.sparsity import Scope, exact, send_largest

if TYPE_CHECKING:
    from torch import Generator, Tensor


@register("topk")
class TopK(DefenseSpec):
    """The share of values with the largest magnitude is sent, with their positions.

    Of a gradient and of a difference of weights they are the same.
    """

    source = "Aji and Heafield 2017; ROG section 4"

    keep: float = parameter(0.05, "share of values that is sent", source="ROG Figure 6", gt=0, le=1)
    scope: Scope = parameter("tensor", "what a value is compared with")

    @override
    def protect(
        self, update: dict[str, Tensor], generator: Generator, memory: Memory
    ) -> dict[str, Encoded]:
        """At least one value is sent of what is compared."""
        return {**send_largest(update, exact(self.keep), self.scope)}
