"""Weights of layers in the distance between gradients (AGIC section IV-C)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from gleak.core.lazy import torch

if TYPE_CHECKING:
    from gleak.attacks.matching.distances.base import Pair, Piece

LayerFunction = Literal["linear", "exponential", "logarithmic"]
FUNCTIONS: Mapping[LayerFunction, Callable[[int], float]] = MappingProxyType(
    {"linear": float, "exponential": math.exp, "logarithmic": math.log}
)
"""Functions of a convolution's position, counted from 1, that the weights follow."""
CONVOLUTION, DENSE = 4, 2
"""Dimensions of a layer's weight."""


@dataclass(frozen=True, kw_only=True)
class LayerWeights:
    """Weight of each layer's gradient in the distance.

    The first convolution has weight 1 and the last ``beta`` (Eq. 7), dense layers have the mean
    weight of the convolutions (Eq. 8). Biases and batch normalisation have the weight of the
    convolution or dense layer before them; the paper does not specify them.

    Args:
        beta: weight of the last convolution; below 1 weights fall.
        function: of the layer's position, that weights follow between the two.
        relu_modifier: divide a convolution's weight by the share of its gradient that is nonzero.
    """

    beta: float
    function: LayerFunction = "linear"
    relu_modifier: bool = True

    def of(self, observed: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Compute the weights of the parameters of V victims.

        Args:
            observed: the observed gradients, Shape (V, *shape), in the order of the layers.

        Returns:
            For each parameter, Shape (V).
        """
        along = self.along(sum(value.ndim - 1 == CONVOLUTION for value in observed.values()))
        dense = sum(along) / len(along) if along else 1.0
        left = iter(along)
        weights: dict[str, torch.Tensor] = {}
        current: torch.Tensor | None = None
        for name, value in observed.items():
            if value.ndim - 1 == CONVOLUTION:
                current = next(left) * self._modifier(value)
            elif value.ndim - 1 == DENSE:
                current = value.new_full((len(value),), dense)
            weights[name] = value.new_ones(len(value)) if current is None else current.to(value)
        return weights

    def along(self, convolutions: int) -> list[float]:
        """Compute the weight of each convolution, before the modifier (Eq. 7)."""
        rise = FUNCTIONS[self.function]
        first, last = rise(1), rise(max(convolutions, 2))
        places = range(1, convolutions + 1)
        return [1 + (self.beta - 1) * (rise(place) - first) / (last - first) for place in places]

    def _modifier(self, gradient: torch.Tensor) -> torch.Tensor:
        """Compute one over the share of nonzero entries, or 1 without any; Shape (V)."""
        if not self.relu_modifier:
            return gradient.new_ones(len(gradient))
        shares = (gradient != 0).reshape(len(gradient), -1).double().mean(1)
        return shares.where(shares > 0, 1).reciprocal()


@dataclass(frozen=True)
class WeightedPiece:
    """Pair of gradients whose products and distances are multiplied by the weight of the layer.

    Args:
        piece: the unweighted pair.
        weight: Shape (V).
    """

    piece: Piece
    weight: torch.Tensor

    @property
    def name(self) -> str:
        """Name of the parameter."""
        return self.piece.name

    def within(self, sent: torch.Tensor) -> WeightedPiece:
        """Mask both gradients; see `Piece.within`."""
        return WeightedPiece(self.piece.within(sent), self.weight)

    @property
    def entries(self) -> int:
        """Number of values of the parameter."""
        return self.piece.entries

    def unlikelihood(self) -> torch.Tensor:
        """Compute the weighted unlikelihood of what was sent; Shape (V)."""
        return self.weight * self.piece.unlikelihood()

    def squared_distance(self) -> torch.Tensor:
        """Compute the weighted squared distance; Shape (V)."""
        return self.weight * self.piece.squared_distance()

    def sign_distance(self, gain: float) -> torch.Tensor:
        """Compute the weighted distance of smoothed signs; Shape (V)."""
        return self.weight * self.piece.sign_distance(gain)

    def inner(self) -> torch.Tensor:
        """Compute the weighted inner product; Shape (V)."""
        return self.weight * self.piece.inner()

    def squared_norm(self) -> torch.Tensor:
        """Compute the weighted squared norm of the dummy gradient; Shape (V)."""
        return self.weight * self.piece.squared_norm()

    def target_squared_norm(self) -> torch.Tensor:
        """Compute the weighted squared norm of the observed gradient; Shape (V)."""
        return self.weight * self.piece.target_squared_norm()


def weighted(pieces: Sequence[Piece], weights: Mapping[str, torch.Tensor]) -> list[Pair]:
    """Apply the weights of layers to pieces; those without a weight are unchanged."""
    return [
        WeightedPiece(piece, weights[piece.name]) if piece.name in weights else piece
        for piece in pieces
    ]
