"""Signs of a gradient against a smooth sign of the dummy's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from typing_extensions import override

from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.matching.distances.base import Piece, total
from gleak.matching.distances.l2 import L2

if TYPE_CHECKING:
    from torch import Tensor


@register("signs")
class Signs(L2):
    """Sum over all parameters of (tanh(a g') - s)^2, s the signs received (ROG Eq. 15)."""

    source = "ROG Equation 15"

    gain: float = parameter(
        1.0, "a: what gradients are multiplied by", source="ROG Equation 15", gt=0
    )

    @override
    def measure(self, pieces: Sequence[Piece]) -> Tensor:
        """Gradients are formed, whatever their size."""
        return total([piece.sign_distance(self.gain) for piece in pieces])
