"""Weights of layers in the distance between gradients (AGIC section IV-C)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from torch import Tensor

    from gleak.matching.distances.base import Piece

LayerFunction = Literal["linear", "exponential", "logarithmic"]
FUNCTIONS: Mapping[LayerFunction, Callable[[int], float]] = MappingProxyType(
    {"linear": float, "exponential": math.exp, "logarithmic": math.log}
)
"""What a weight rises or falls with, at a convolution's place, which counts from 1."""
CONVOLUTION, DENSE = 4, 2
"""Dimensions of a layer's weight."""


@dataclass(frozen=True, kw_only=True)
class LayerWeights:
    """How much each layer's gradient counts.

    The first convolution counts once and the last ``beta`` times (Eq. 7), dense layers as much as
    the mean convolution (Eq. 8). Biases and batch normalisation count as the convolution or the
    dense layer before them; of the paper's networks it tells no more.

    Args:
        beta: below 1 weights fall.
        function: of the layer's place, that weights follow between the two.
        relu_modifier: divide a convolution's weight by the share of its gradient that is not zero.
    """

    beta: float
    function: LayerFunction = "linear"
    relu_modifier: bool = True

    def of(self, observed: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Weights of the parameters of V victims.

        Args:
            observed: the gradients received, Shape (V, *shape), in the order of the layers.

        Returns:
            For each parameter, Shape (V).
        """
        along = self.along(sum(value.ndim - 1 == CONVOLUTION for value in observed.values()))
        dense = sum(along) / len(along) if along else 1.0
        left = iter(along)
        weights: dict[str, Tensor] = {}
        current: Tensor | None = None
        for name, value in observed.items():
            if value.ndim - 1 == CONVOLUTION:
                current = next(left) * self._modifier(value)
            elif value.ndim - 1 == DENSE:
                current = value.new_full((len(value),), dense)
            weights[name] = value.new_ones(len(value)) if current is None else current.to(value)
        return weights

    def along(self, convolutions: int) -> list[float]:
        """The weight of each convolution, before the modifier (Eq. 7)."""
        rise = FUNCTIONS[self.function]
        first, last = rise(1), rise(max(convolutions, 2))
        places = range(1, convolutions + 1)
        return [1 + (self.beta - 1) * (rise(place) - first) / (last - first) for place in places]

    def _modifier(self, gradient: Tensor) -> Tensor:
        """One over the share of values that are not zero; Shape (V). Without any, 1."""
        if not self.relu_modifier:
            return gradient.new_ones(len(gradient))
        shares = (gradient != 0).flatten(1).double().mean(1)
        return shares.where(shares > 0, 1).reciprocal()


@dataclass(frozen=True)
class WeightedPiece:
    """A parameter's gradients, their products times the weight of the layer.

    Args:
        piece: as they are.
        weight: Shape (V).
    """

    piece: Piece
    weight: Tensor

    @property
    def name(self) -> str:
        """The parameter's name."""
        return self.piece.name

    def within(self, sent: Tensor) -> WeightedPiece:
        """Keep only the entries that were sent."""
        return WeightedPiece(self.piece.within(sent), self.weight)

    def squared_distance(self) -> Tensor:
        """Shape (V)."""
        return self.weight * self.piece.squared_distance()

    def sign_distance(self, gain: float) -> Tensor:
        """Shape (V)."""
        return self.weight * self.piece.sign_distance(gain)

    def inner(self) -> Tensor:
        """Shape (V)."""
        return self.weight * self.piece.inner()

    def squared_norm(self) -> Tensor:
        """Shape (V)."""
        return self.weight * self.piece.squared_norm()

    def target_squared_norm(self) -> Tensor:
        """Shape (V)."""
        return self.weight * self.piece.target_squared_norm()


def weighted(pieces: Sequence[Piece], weights: Mapping[str, Tensor]) -> list[Piece]:
    """Pieces whose layers count by these weights; those without one as they are."""
    return [
        WeightedPiece(piece, weights[piece.name]) if piece.name in weights else piece
        for piece in pieces
    ]
