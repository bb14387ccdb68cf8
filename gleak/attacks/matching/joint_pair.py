"""Products of the gradients of many parameters at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from gleak.attacks.matching.distances.base import Pair, Piece
from gleak.attacks.matching.layer_weights import weighted
from gleak.attacks.matching.pieces import FormedPiece, rows


def joined(pieces: Sequence[Piece], weights: Mapping[str, Tensor]) -> Sequence[Pair]:
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
    weights: Tensor

    @property
    def entries(self) -> int:
        """Number of values of all parameters."""
        return sum(piece.entries for piece in self.pieces)

    def unlikelihood(self) -> Tensor:
        """Compute the weighted unlikelihood of what was sent; Shape (V)."""
        return self._sum([piece.unlikelihood() for piece in self.pieces])

    def squared_distance(self) -> Tensor:
        """Compute the weighted squared distance; Shape (V)."""
        return self._sum([piece.squared_distance() for piece in self.pieces])

    def sign_distance(self, gain: float) -> Tensor:
        """Compute the weighted distance of smoothed signs; Shape (V)."""
        return self._sum([piece.sign_distance(gain) for piece in self.pieces])

    def inner(self) -> Tensor:
        """Compute the weighted inner product; Shape (V)."""
        return self._products[0]

    def squared_norm(self) -> Tensor:
        """Compute the weighted squared norm of the dummy gradient; Shape (V)."""
        return self._products[1]

    def target_squared_norm(self) -> Tensor:
        """Compute the weighted squared norm of the observed gradient; Shape (V)."""
        return self._sum([piece.target_squared_norm() for piece in self.pieces])

    def _sum(self, values: Sequence[Tensor]) -> Tensor:
        return (self.weights * torch.stack(list(values))).sum(0)

    @cached_property
    def _products(self) -> tuple[Tensor, Tensor]:
        targets, gradients = zip(*((p.target, p.gradient) for p in self.pieces), strict=True)
        return _Products.apply(self.weights, targets, *gradients)


class _Products(torch.autograd.Function):
    """Weighted sums over parameters of inner products with targets, and of squared norms."""

    @staticmethod
    def forward(
        ctx: Any, weights: Tensor, targets: Sequence[Tensor], *gradients: Tensor
    ) -> tuple[Tensor, Tensor]:
        ctx.weights, ctx.targets = weights, targets
        ctx.save_for_backward(*gradients)
        pairs = [(rows(g), rows(t)) for g, t in zip(gradients, targets, strict=True)]
        inner = torch.stack([(gradient * target).sum(1) for gradient, target in pairs])
        squares = torch.stack([(gradient * gradient).sum(1) for gradient, _ in pairs])
        return (weights * inner).sum(0), (weights * squares).sum(0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *slopes: Any) -> tuple[Tensor | None, ...]:
        inner, squares = ctx.weights * slopes[0], 2 * ctx.weights * slopes[1]
        rows = zip(ctx.saved_tensors, ctx.targets, inner, squares, strict=True)
        return (None, None, *(_combined(*row) for row in rows))


def _combined(gradient: Tensor, target: Tensor, inner: Tensor, square: Tensor) -> Tensor:
    """Compute a sum of gradient and target with factors of each victim."""
    shape = (-1, *[1] * (gradient.ndim - 1))
    return (target * inner.view(shape)).addcmul_(gradient, square.view(shape))
