"""Products of the gradients of many parameters at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from gleak.attacks.matching.distances.base import Pair, Piece
from gleak.attacks.matching.layer_weights import weighted
from gleak.attacks.matching.pieces import FormedPiece
from gleak.core.lazy import torch


def joined(pieces: Sequence[Piece], weights: Mapping[str, torch.Tensor]) -> Sequence[Pair]:
    """Apply the weights of layers, and join all pieces whose gradients are materialised to one.

    Args:
        pieces: of the parameters.
        weights: by parameter, Shape (V); 1 for those that are missing.
    """
    formed = [piece for piece in pieces if isinstance(piece, FormedPiece)]
    others = [piece for piece in pieces if not isinstance(piece, FormedPiece)]
    if not formed:
        return weighted(others, weights)
    equal = formed[0].target.new_ones(len(formed[0].target))
    factors = torch.stack([weights.get(piece.name, equal) for piece in formed])
    return [JointPair(formed, factors), *weighted(others, weights)]


@dataclass(frozen=True)
class JointPair:
    """Dummy and observed gradients of several parameters, each with its weight.

    Args:
        pieces: the unweighted pairs.
        weights: Shape (parameters, V).
    """

    pieces: Sequence[FormedPiece]
    weights: torch.Tensor

    @property
    def entries(self) -> int:
        """Number of values of all parameters."""
        return sum(piece.entries for piece in self.pieces)

    def unlikelihood(self) -> torch.Tensor:
        """Compute the weighted unlikelihood of what was sent; Shape (V)."""
        return self._sum([piece.unlikelihood() for piece in self.pieces])

    def squared_distance(self) -> torch.Tensor:
        """Compute the weighted squared distance; Shape (V)."""
        return self._sum([piece.squared_distance() for piece in self.pieces])

    def sign_distance(self, gain: float) -> torch.Tensor:
        """Compute the weighted distance of smoothed signs; Shape (V)."""
        return self._sum([piece.sign_distance(gain) for piece in self.pieces])

    def inner(self) -> torch.Tensor:
        """Compute the weighted inner product; Shape (V)."""
        return self._products[0]

    def squared_norm(self) -> torch.Tensor:
        """Compute the weighted squared norm of the dummy gradient; Shape (V)."""
        return self._products[1]

    def target_squared_norm(self) -> torch.Tensor:
        """Compute the weighted squared norm of the observed gradient; Shape (V)."""
        return self._sum([piece.target_squared_norm() for piece in self.pieces])

    def _sum(self, values: Sequence[torch.Tensor]) -> torch.Tensor:
        return (self.weights * torch.stack(list(values))).sum(0)

    @cached_property
    def _products(self) -> tuple[torch.Tensor, torch.Tensor]:
        from gleak.attacks.matching.functions import Products

        targets, gradients = zip(*((p.target, p.gradient) for p in self.pieces), strict=True)
        return Products.apply(self.weights, targets, *gradients)
