"""Distance to what the client sent: how unlikely its code is, given the dummy gradient."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from typing_extensions import override

from gleak.attacks.matching.distances.base import DistanceSpec, Pair, total
from gleak.core.lazy import torch
from gleak.core.registry import register


@register("likelihood")
class Likelihood(DistanceSpec):
    """Mean over all values of minus the logarithm of the probability of the code that was sent.

    For codes of values that were rounded (`qsgd`, `quantize`) and for signs (`signsgd`), of which
    many gradients have the same (`gleak.attacks.matching.code_cells`). A gradient that cannot have
    been sent so is as far as it lies outside. Other updates have the squared distance of each
    parameter, relative to its mean square, so that small layers count as much as their values do.
    Every gradient is materialised, whatever its size.
    """

    source = "ours; the probabilities of QSGD are ROG Equation 7"
    reads_codes: ClassVar[bool] = True

    @override
    def measure(self, pieces: Sequence[Pair]) -> torch.Tensor:
        entries = sum(piece.entries for piece in pieces)
        return total([piece.unlikelihood() for piece in pieces]) / entries

    @override
    def scale(self, observed: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return 1: logarithms of probabilities have no scale; Shape (V)."""
        return observed[0].new_ones(len(observed[0]))
