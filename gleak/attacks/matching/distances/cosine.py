"""Cosine distance between gradients."""

from __future__ import annotations

from collections.abc import Sequence

from typing_extensions import override

from gleak.attacks.matching.distances.base import DistanceSpec, Pair, total
from gleak.core.lazy import torch
from gleak.core.registry import register

FLOOR = 1e-20


@register("cosine")
class Cosine(DistanceSpec):
    """One minus the cosine of all parameters taken as one vector (InvertGrad)."""

    @override
    def measure(self, pieces: Sequence[Pair]) -> torch.Tensor:
        inner = total([piece.inner() for piece in pieces])
        squared = total([piece.squared_norm() for piece in pieces])
        target = total([piece.target_squared_norm() for piece in pieces])
        return 1 - inner / (squared * target).clamp_min(FLOOR).sqrt()

    @override
    def scale(self, observed: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return 1, as for any gradient orthogonal to the observed one; Shape (V)."""
        return observed[0].new_ones(len(observed[0]))
