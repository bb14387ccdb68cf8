"""Pairs of dummy and observed gradients, of which a distance is computed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol

from gleak.attacks.matching import kernels
from gleak.core.lazy import torch

FLOOR = 1e-30
RIDGE = 1e-6
"""Added to products of samples, relative to their mean square: samples may be equal."""


class Errors(NamedTuple):
    """Squared errors in E subspaces of the values that were sent.

    Args:
        squared: Shape (E, V).
        values: dimensions of the subspaces; Shape (E, V).
        of_rows: True if each is of one row of a gradient.
    """

    squared: torch.Tensor
    values: torch.Tensor
    of_rows: bool = False


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
        """Return both gradients multiplied by ones and zeros; Shape (V, *shape)."""
        formed = self.formed()
        gradient, target = formed.gradient * sent, formed.target * sent
        return replace(formed, gradient=gradient, target=target, sent=sent)

    def projected(self, basis: torch.Tensor) -> Piece:
        """Return both gradients, as matrices, in a basis of their columns; Shape (V, rows, K)."""
        formed = self.formed()
        gradient, target = (
            basis.mT @ values.flatten(1).unflatten(1, (basis.shape[1], -1))
            for values in (formed.gradient, formed.target)
        )
        factors = formed.factors and (formed.factors[0] @ basis, formed.factors[1])
        return FormedPiece(self.name, gradient, target, factors=factors)

    def scaled(self, factors: torch.Tensor) -> Piece:
        """Return the pair with the dummy gradient of each victim multiplied; Shape (V)."""
        raise NotImplementedError

    def fitted(self) -> Piece:
        """Return the pair with the dummy gradient scaled by least squares, not below zero."""
        factors = self.inner() / self.squared_norm().clamp_min(FLOOR)
        return self.scaled(factors.clamp_min(0))

    def squared_errors(self) -> Sequence[Errors]:
        """Compute the squared errors of what was sent, apart where their size may differ."""
        return [Errors(self.squared_distance()[None], self.counts[None])]

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
    """Pair with a materialised dummy gradient, attached to the graph of the dummy inputs.

    Args:
        name: of the parameter.
        gradient: the dummy gradient; Shape (V, *shape), as the target.
        target: the observed gradient.
        factors: gradients at the outputs of a dense layer whose weight this is, Shape (V, N, out),
            and its inputs, Shape (V, N, in); None if they are not known.
        sent: ones for the values that were sent, else zeros; None: all of them.
    """

    name: str
    gradient: torch.Tensor
    target: torch.Tensor
    factors: tuple[torch.Tensor, torch.Tensor] | None = None
    sent: torch.Tensor | None = None

    def formed(self) -> FormedPiece:
        return self

    def scaled(self, factors: torch.Tensor) -> FormedPiece:
        shape = (-1, *[1] * (self.gradient.ndim - 1))
        scaled = replace(self, gradient=self.gradient * factors.view(shape))
        if self.factors is None:
            return scaled
        outputs, inputs = self.factors
        return replace(scaled, factors=(outputs * factors[:, None, None], inputs))

    def squared_distance(self) -> torch.Tensor:
        return _sum_squares(self.gradient - self.target)

    def inner(self) -> torch.Tensor:
        return rows(self.gradient * self.target).sum(1)

    def squared_norm(self) -> torch.Tensor:
        return _sum_squares(self.gradient)

    @property
    def counts(self) -> torch.Tensor:
        return super().counts if self.sent is None else rows(self.sent).sum(1)

    def residual(self) -> torch.Tensor:
        """Compute the error of every value of what was sent; Shape (V, *shape)."""
        return self.gradient - self.target

    def follows(self, residual: torch.Tensor) -> torch.Tensor | None:
        """Return ones where the error changes with the gradient, else zeros; None: all ones."""
        return self.sent

    def squared_errors(self) -> Sequence[Errors]:
        if self.factors is None or is_narrow(self.factors[1]):
            return [Errors(_sum_squares(self.residual())[None], self.counts[None])]
        squared, along = self.errors_of_rows(*self.factors)
        inputs = self.factors[1]
        gram = (inputs @ inputs.mT)[:, None] if self.sent is None else sent_gram(inputs, self.sent)
        return split_errors(squared.sum(1), self.counts, along, gram)

    def errors_of_rows(
        self, outputs: torch.Tensor, inputs: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute the squared error of each row, and its product with a dense layer's inputs.

        Shape (V, out) and (V, out, N).
        """
        residual = self.residual().detach()
        follows = self.follows(residual)
        errors: tuple[torch.Tensor, torch.Tensor]
        errors = derivatives().FactoredErrors.apply(inputs, outputs, residual, follows)
        return errors


def sent_gram(inputs: torch.Tensor, sent: torch.Tensor) -> torch.Tensor:
    """Compute the products of the inputs with each other over the values sent of each row.

    Args:
        inputs: Shape (V, N, in).
        sent: ones and zeros; Shape (V, out, in).

    Returns:
        Shape (V, out, N, N).
    """
    samples = inputs.shape[1]
    first, second = torch.triu_indices(samples, samples, device=inputs.device)
    pairs = inputs.index_select(1, first) * inputs.index_select(1, second)
    position = first.new_empty(samples, samples)
    numbers = torch.arange(len(first), device=inputs.device)
    position[first, second] = position[second, first] = numbers
    products = (pairs @ sent.mT).index_select(1, position.flatten())
    return products.mT.unflatten(2, (samples, samples))


def is_narrow(inputs: torch.Tensor) -> bool:
    """Return True if samples span a layer's inputs, Shape (V, N, in), or half of them and more."""
    return 2 * inputs.shape[1] >= inputs.shape[2]


def regularised(gram: torch.Tensor) -> torch.Tensor:
    """Add to products of samples what makes them invertible; Shape (..., N, N)."""
    least = RIDGE * gram.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None] + FLOOR
    return gram + least * torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)


def split_errors(
    total: torch.Tensor, counts: torch.Tensor, along: torch.Tensor, gram: torch.Tensor
) -> Sequence[Errors]:
    """Split the squared error of a dense layer's gradient by the span of the layer's inputs.

    The gradient is D^T A. A unit that is active in place of another changes a row of it whatever
    the samples A are, which is an error in their span.

    Args:
        total: squared error; Shape (V).
        counts: number of values; Shape (V).
        along: products of each row of the error with the inputs; Shape (V, out, N).
        gram: products of the inputs with each other, over the values sent of each row; Shape (V,
            out, N, N), or (V, 1, N, N) if all were sent.

    Returns:
        Errors in the span, of each row, and outside of it, with their numbers of values.
    """
    samples = along.shape[2]
    least = RIDGE * gram.diagonal(dim1=2, dim2=3).sum(2).amax(1)[:, None, None, None] + FLOOR
    regular = gram + least * torch.eye(samples, dtype=gram.dtype, device=gram.device)
    explained = torch.linalg.solve_ex(regular, along[..., None]).result[..., 0]
    within = (explained * along).sum(2).clamp_min(0).T
    of_span = (counts / 2 / along.shape[1]).clamp_max(samples).expand_as(within)
    outside = Errors((total - within.sum(0)).clamp_min(0)[None], (counts - of_span.sum(0))[None])
    return [Errors(within, of_span, of_rows=True), outside]


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
        factors = (self.output_gradients, self.inputs)
        gradient = self.output_gradients.mT @ self.inputs
        return FormedPiece(self.name, gradient, self.target, factors=factors)

    def scaled(self, factors: torch.Tensor) -> OuterPiece:
        return replace(self, output_gradients=self.output_gradients * factors[:, None, None])

    def fitted(self) -> OuterPiece:
        """Return the pair with the gradient of each sample scaled by itself."""
        outputs = self.output_gradients
        gram = (outputs @ outputs.mT) * (self.inputs @ self.inputs.mT)
        along = ((self.inputs @ self.target.mT) * outputs).sum(2)
        factors = torch.linalg.solve_ex(regularised(gram), along).result.clamp_min(0)
        return replace(self, output_gradients=outputs * factors[:, :, None])

    def projected(self, basis: torch.Tensor) -> OuterPiece:
        outputs, target = self.output_gradients @ basis, basis.mT @ self.target
        return replace(self, output_gradients=outputs, target=target)

    def squared_distance(self) -> torch.Tensor:
        """Compute the squared distance; accurate near zero, where its expansion cancels."""
        return self._norm_and_products()[0]

    def squared_errors(self) -> Sequence[Errors]:
        total, along = self._norm_and_products()
        if is_narrow(self.inputs):
            return [Errors(total[None], self.counts[None])]
        gram = self.inputs @ self.inputs.mT
        return split_errors(total, self.counts, along, gram[:, None])

    def _norm_and_products(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute the squared norm of the residual, and its products with the inputs."""
        factors = (self.inputs, self.output_gradients)
        residual: tuple[torch.Tensor, torch.Tensor]
        residual = derivatives().OuterResidual.apply(*factors, self.target)
        return residual

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
