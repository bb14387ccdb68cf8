"""Pairs of dummy and observed gradients, of which a distance is computed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

from gleak.attacks.matching import kernels
from gleak.core.lazy import torch

FLOOR = 1e-30


class Pair(Protocol):
    """Dummy gradient paired with the observed one, for V victims."""

    @property
    def entries(self) -> int:
        """Number of values, whatever was sent of them."""

    def unlikelihood(self) -> torch.Tensor:
        """Compute minus the logarithm of the likelihood of what was sent; Shape (V)."""

    def squared_distance(self) -> torch.Tensor:
        """Compute the sum of squared differences; Shape (V)."""

    def sign_distance(self, gain: float) -> torch.Tensor:
        """Compute the sum of squared differences to tanh(gain x dummy gradient); Shape (V)."""

    def inner(self) -> torch.Tensor:
        """Compute the inner product of dummy and observed gradient; Shape (V)."""

    def squared_norm(self) -> torch.Tensor:
        """Compute the squared norm of the dummy gradient; Shape (V)."""

    def target_squared_norm(self) -> torch.Tensor:
        """Compute the squared norm of the observed gradient; Shape (V)."""


def rows(values: torch.Tensor) -> torch.Tensor:
    """Return the values of each victim in a row, of parameters without axes too; Shape (V, M)."""
    return values.reshape(len(values), -1)


def _sum_squares(values: torch.Tensor) -> torch.Tensor:
    flat = rows(values)
    return (flat * flat).sum(1)


def derivatives() -> Any:
    """Return the module of derivatives written by hand, whose definitions load torch."""
    from gleak.attacks.matching import functions

    return functions


class Piece(Pair, Protocol):
    """Pair of the gradients of one parameter.

    Attributes:
        name: of the parameter.
        target: the observed gradient; Shape (V, *shape).
    """

    name: str
    target: torch.Tensor

    def formed(self) -> FormedPiece:
        """Return the pair with a dummy gradient that is materialised."""
        raise NotImplementedError

    def within(self, sent: torch.Tensor) -> FormedPiece:
        """Return both gradients with all entries outside a mask, Shape (V, *shape), set to zero."""
        formed = self.formed()
        return MaskedPiece(self.name, formed.gradient * sent, formed.target * sent, sent)

    def projected(self, basis: torch.Tensor) -> Piece:
        """Return both gradients, as matrices, in a basis of their columns; Shape (V, rows, K)."""
        formed = self.formed()
        gradient, target = (
            basis.mT @ values.flatten(1).unflatten(1, (basis.shape[1], -1))
            for values in (formed.gradient, formed.target)
        )
        return FormedPiece(self.name, gradient, target)

    def scaled(self, factors: torch.Tensor) -> Piece:
        """Return the pair with the dummy gradient of each victim multiplied; Shape (V)."""
        raise NotImplementedError

    def squared_error(self) -> torch.Tensor:
        """Compute the squared distance of the dummy gradient from what was sent; Shape (V)."""
        return self.squared_distance()

    @property
    def entries(self) -> int:
        return self.target[0].numel()

    @property
    def counts(self) -> torch.Tensor:
        """Number of values of each victim that were sent; Shape (V)."""
        return self.target.new_full((len(self.target),), self.entries)

    def unlikelihood(self) -> torch.Tensor:
        """Compute the squared distance relative to the target's mean square; Shape (V)."""
        mean_square = self.target_squared_norm() / self.entries
        return self.formed().squared_distance() / mean_square.clamp_min(FLOOR)

    def sign_distance(self, gain: float) -> torch.Tensor:
        return _sum_squares((gain * self.formed().gradient).tanh() - self.target)

    def target_squared_norm(self) -> torch.Tensor:
        return torch.linalg.vector_norm(rows(self.target), dim=1).square()


@dataclass(frozen=True)
class FormedPiece(Piece):
    """Pair with a materialised dummy gradient, attached to the graph of the dummy inputs."""

    name: str
    gradient: torch.Tensor
    target: torch.Tensor

    def formed(self) -> FormedPiece:
        return self

    def scaled(self, factors: torch.Tensor) -> FormedPiece:
        shape = (-1, *[1] * (self.gradient.ndim - 1))
        return replace(self, gradient=self.gradient * factors.view(shape))

    def squared_distance(self) -> torch.Tensor:
        return _sum_squares(self.gradient - self.target)

    def inner(self) -> torch.Tensor:
        return rows(self.gradient * self.target).sum(1)

    def squared_norm(self) -> torch.Tensor:
        return _sum_squares(self.gradient)


@dataclass(frozen=True)
class MaskedPiece(FormedPiece):
    """Pair of gradients that are zero outside a mask of what was sent; Shape (V, *shape)."""

    sent: torch.Tensor

    @property
    def counts(self) -> torch.Tensor:
        return rows(self.sent).sum(1).to(self.target)


@dataclass(frozen=True)
class OuterPiece(Piece):
    """Pair of gradients of a dense layer's weight, with a dummy gradient D^T A in factored form.

    Its norm is sum((D D^T) * (A A^T)) and its inner product with the target G, Shape (V, out, in),
    is sum((A G^T) * D), which need memory for N x N and N x out entries only.

    Args:
        name: of the parameter.
        output_gradients: D, gradients at the layer's outputs; Shape (V, N, out).
        inputs: A, the layer's inputs; Shape (V, N, in).
        target: G, the observed gradient.
    """

    name: str
    output_gradients: torch.Tensor
    inputs: torch.Tensor
    target: torch.Tensor

    def formed(self) -> FormedPiece:
        return FormedPiece(self.name, self.output_gradients.mT @ self.inputs, self.target)

    def scaled(self, factors: torch.Tensor) -> OuterPiece:
        return replace(self, output_gradients=self.output_gradients * factors[:, None, None])

    def projected(self, basis: torch.Tensor) -> OuterPiece:
        outputs, target = self.output_gradients @ basis, basis.mT @ self.target
        return replace(self, output_gradients=outputs, target=target)

    def squared_distance(self) -> torch.Tensor:
        """Compute the squared distance; accurate near zero, where its expansion cancels."""
        factors = (self.inputs, self.output_gradients)
        total: torch.Tensor = derivatives().OuterResidual.apply(*factors, self.target)
        return total

    def inner(self) -> torch.Tensor:
        return ((self.inputs @ self.target.mT) * self.output_gradients).sum((1, 2))

    def squared_norm(self) -> torch.Tensor:
        products = self.output_gradients @ self.output_gradients.mT
        return (products * (self.inputs @ self.inputs.mT)).sum((1, 2))


@dataclass(frozen=True)
class WeightedPair:
    """Gradients of several parameters as one pair, each weighted; Shape (parameters, V)."""

    pieces: Sequence[Piece]
    weights: torch.Tensor

    @property
    def entries(self) -> int:
        return sum(piece.entries for piece in self.pieces)

    def unlikelihood(self) -> torch.Tensor:
        return self._sum(lambda piece: piece.unlikelihood())

    def squared_distance(self) -> torch.Tensor:
        return self._sum(lambda piece: piece.squared_distance())

    def sign_distance(self, gain: float) -> torch.Tensor:
        return self._sum(lambda piece: piece.sign_distance(gain))

    def inner(self) -> torch.Tensor:
        return self._sum(lambda piece: piece.inner())

    def squared_norm(self) -> torch.Tensor:
        return self._sum(lambda piece: piece.squared_norm())

    def target_squared_norm(self) -> torch.Tensor:
        return self._sum(lambda piece: piece.target_squared_norm())

    def _sum(self, quantity: Callable[[Piece], torch.Tensor]) -> torch.Tensor:
        return (self.weights * torch.stack([quantity(piece) for piece in self.pieces])).sum(0)


@dataclass(frozen=True)
class JointPair(WeightedPair):
    """Materialised gradients of several parameters, whose products are computed at once."""

    pieces: Sequence[FormedPiece]

    def inner(self) -> torch.Tensor:
        return self._products[0]

    def squared_norm(self) -> torch.Tensor:
        return self._products[1]

    @cached_property
    def _products(self) -> Sequence[torch.Tensor]:
        targets, gradients = zip(*((p.target, p.gradient) for p in self.pieces), strict=True)
        return tuple(derivatives().Products.apply(self.weights, targets, *gradients))


@dataclass(frozen=True)
class FlatPair(WeightedPair):
    """Materialised gradients of several parameters, whose products are those of two long vectors.

    It starts few kernels, and takes memory for copies of both gradients.

    Args:
        pieces: of the parameters.
        weights: of the parameters.
        equal: True if all weights are one.
    """

    pieces: Sequence[FormedPiece]
    equal: bool

    def squared_distance(self) -> torch.Tensor:
        return self._whole.squared_distance()

    def inner(self) -> torch.Tensor:
        return self._whole.inner()

    def squared_norm(self) -> torch.Tensor:
        return self._whole.squared_norm()

    def target_squared_norm(self) -> torch.Tensor:
        return self._whole.target_squared_norm()

    @cached_property
    def _whole(self) -> FormedPiece:
        """Both vectors, multiplied by the square roots of the weights."""
        gradient = torch.cat([rows(piece.gradient) for piece in self.pieces], 1)
        target = torch.cat([rows(piece.target) for piece in self.pieces], 1)
        if self.equal:
            return FormedPiece("", gradient, target)
        pairs = zip(self.weights.sqrt(), self.pieces, strict=True)
        roots = torch.cat([root[:, None].expand(-1, piece.entries) for root, piece in pairs], 1)
        return FormedPiece("", gradient * roots, target * roots)


def weighted_pairs(pieces: Sequence[Piece], weights: Mapping[str, torch.Tensor]) -> Sequence[Pair]:
    """Apply the weights of layers, and join all pieces whose gradients are materialised to one.

    Weights are by parameter, Shape (V); a missing one is 1.
    """
    formed = [piece for piece in pieces if isinstance(piece, FormedPiece)]
    pairs: list[Pair] = []
    if formed:
        equal = formed[0].target.new_ones(len(formed[0].target))
        factors = torch.stack([weights.get(piece.name, equal) for piece in formed])
        if kernels.on_cpu(factors):
            pairs.append(JointPair(formed, factors))
        else:
            pairs.append(FlatPair(formed, factors, equal=not weights))
    for piece in pieces:
        if not isinstance(piece, FormedPiece):
            weight = weights.get(piece.name)
            pairs.append(piece if weight is None else WeightedPair([piece], weight[None]))
    return pairs
