"""Pairs of dummy and observed gradients, by parameter (see `distances.base.Piece`)."""

from __future__ import annotations

from dataclasses import dataclass

from gleak.core.lazy import torch

BLOCK_ENTRIES = 2**18
FLOOR = 1e-30


def rows(values: torch.Tensor) -> torch.Tensor:
    """Return the values of each victim in a row, of parameters without axes too; Shape (V, M)."""
    return values.reshape(len(values), -1)


def _sum_squares(values: torch.Tensor) -> torch.Tensor:
    flat = rows(values)
    return (flat * flat).sum(1)


@dataclass(frozen=True)
class FormedPiece:
    """Pair of gradients with a dummy gradient that is materialised.

    Args:
        name: of the parameter.
        gradient: Shape (V, *shape), attached to the graph of the dummy inputs.
        target: the observed gradient; Shape (V, *shape).
    """

    name: str
    gradient: torch.Tensor
    target: torch.Tensor

    def within(self, sent: torch.Tensor) -> FormedPiece:
        """Mask both gradients; see `Piece.within`."""
        return FormedPiece(self.name, self.gradient * sent, self.target * sent)

    @property
    def entries(self) -> int:
        """Number of values of the parameter."""
        return self.target[0].numel()

    def formed(self) -> FormedPiece:
        """Return this pair."""
        return self

    def unlikelihood(self) -> torch.Tensor:
        """Compute the squared distance relative to the target's mean square; Shape (V)."""
        mean_square = self.target_squared_norm() / self.entries
        return self.squared_distance() / mean_square.clamp_min(FLOOR)

    def squared_distance(self) -> torch.Tensor:
        """Compute the squared distance; Shape (V)."""
        return _sum_squares(self.gradient - self.target)

    def sign_distance(self, gain: float) -> torch.Tensor:
        """Compute the distance of smoothed signs; Shape (V)."""
        return _sum_squares((gain * self.gradient).tanh() - self.target)

    def inner(self) -> torch.Tensor:
        """Compute the inner product; Shape (V)."""
        return rows(self.gradient * self.target).sum(1)

    def squared_norm(self) -> torch.Tensor:
        """Compute the squared norm of the dummy gradient; Shape (V)."""
        return _sum_squares(self.gradient)

    def target_squared_norm(self) -> torch.Tensor:
        """Compute the squared norm of the observed gradient; Shape (V)."""
        return torch.linalg.vector_norm(rows(self.target), dim=1).square()


@dataclass(frozen=True)
class OuterPiece:
    """Pair of gradients of a dense layer's weight, with a dummy gradient D^T A in factored form.

    Its norm is sum((D D^T) * (A A^T)) and its inner product with the target G is
    sum((A G^T) * D), which need memory for N x N and N x out entries only.

    Args:
        name: of the parameter.
        output_gradients: D, gradients at the layer's outputs; Shape (V, N, out).
        inputs: A, the layer's inputs; Shape (V, N, in).
        target: G, the observed gradient; Shape (V, out, in).
    """

    name: str
    output_gradients: torch.Tensor
    inputs: torch.Tensor
    target: torch.Tensor

    @property
    def entries(self) -> int:
        """Number of values of the parameter."""
        return self.target[0].numel()

    def unlikelihood(self) -> torch.Tensor:
        """Materialise the gradient; see `FormedPiece.unlikelihood`."""
        return self.formed().unlikelihood()

    def formed(self) -> FormedPiece:
        """Materialise the dummy gradient."""
        return FormedPiece(self.name, self.output_gradients.mT @ self.inputs, self.target)

    def within(self, sent: torch.Tensor) -> FormedPiece:
        """Materialise the dummy gradient and mask both; see `Piece.within`."""
        return self.formed().within(sent)

    def squared_distance(self) -> torch.Tensor:
        """Compute the squared distance; accurate near zero, where its expansion cancels."""
        from gleak.attacks.matching.functions import OuterResidual

        return OuterResidual.apply(self.inputs, self.output_gradients, self.target)

    def sign_distance(self, gain: float) -> torch.Tensor:
        """Compute the distance of smoothed signs of the materialised gradient; Shape (V)."""
        return self.formed().sign_distance(gain)

    def inner(self) -> torch.Tensor:
        """Compute the inner product; Shape (V)."""
        return ((self.inputs @ self.target.mT) * self.output_gradients).sum((1, 2))

    def squared_norm(self) -> torch.Tensor:
        """Compute the squared norm of the dummy gradient; Shape (V)."""
        return (
            (self.output_gradients @ self.output_gradients.mT) * (self.inputs @ self.inputs.mT)
        ).sum((1, 2))

    def target_squared_norm(self) -> torch.Tensor:
        """Compute the squared norm of the observed gradient; Shape (V)."""
        return torch.linalg.vector_norm(rows(self.target), dim=1).square()
