"""Squared Euclidean distances between gradients, and between their signs."""

from __future__ import annotations

from collections.abc import Sequence

from typing_extensions import override

from gleak.attacks.matching.distances.base import DistanceSpec, Pair, total
from gleak.core.lazy import torch
from gleak.core.registry import register
from gleak.core.spec import parameter

FLOOR = 1e-30


@register("l2")
class L2(DistanceSpec):
    """Sum of squared differences over all parameters (DLG; CPL Algorithm 1, line 12)."""

    @override
    def measure(self, pieces: Sequence[Pair]) -> torch.Tensor:
        return total([piece.squared_distance() for piece in pieces])

    @override
    def scale(self, observed: Sequence[torch.Tensor]) -> torch.Tensor:
        """Compute the squared norm of the observed gradient; Shape (V)."""
        rows = [value.reshape(len(value), -1) for value in observed]
        return total([row.norm(dim=1).square() for row in rows]).clamp_min(FLOOR)


@register("signs")
class Signs(L2):
    """Sum over all parameters of (tanh(a g') - s)^2, s the observed signs (ROG Eq. 15)."""

    source = "ROG Equation 15"

    gain: float = parameter(1.0, "a: factor of the dummy gradient", source="ROG Equation 15", gt=0)

    @override
    def measure(self, pieces: Sequence[Pair]) -> torch.Tensor:
        """Compute the distance; Shape (V). Every gradient is materialised, whatever its size."""
        return total([piece.sign_distance(self.gain) for piece in pieces])
