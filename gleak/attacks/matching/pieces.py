"""Pairs of dummy and observed gradients, by parameter (see `distances.base.Piece`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

BLOCK_ENTRIES = 2**18
FLOOR = 1e-30


def rows(values: Tensor) -> Tensor:
    """Return the values of each victim in a row, of parameters without axes too; Shape (V, M)."""
    return values.reshape(len(values), -1)


def _sum_squares(values: Tensor) -> Tensor:
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
    gradient: Tensor
    target: Tensor

    def within(self, sent: Tensor) -> FormedPiece:
        """Mask both gradients; see `Piece.within`."""
        return FormedPiece(self.name, self.gradient * sent, self.target * sent)

    @property
    def entries(self) -> int:
        """Number of values of the parameter."""
        return self.target[0].numel()

    def formed(self) -> FormedPiece:
        """Return this pair."""
        return self

    def unlikelihood(self) -> Tensor:
        """Compute the squared distance relative to the target's mean square; Shape (V)."""
        mean_square = self.target_squared_norm() / self.entries
        return self.squared_distance() / mean_square.clamp_min(FLOOR)

    def squared_distance(self) -> Tensor:
        """Compute the squared distance; Shape (V)."""
        return _sum_squares(self.gradient - self.target)

    def sign_distance(self, gain: float) -> Tensor:
        """Compute the distance of smoothed signs; Shape (V)."""
        return _sum_squares((gain * self.gradient).tanh() - self.target)

    def inner(self) -> Tensor:
        """Compute the inner product; Shape (V)."""
        return rows(self.gradient * self.target).sum(1)

    def squared_norm(self) -> Tensor:
        """Compute the squared norm of the dummy gradient; Shape (V)."""
        return _sum_squares(self.gradient)

    def target_squared_norm(self) -> Tensor:
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
    output_gradients: Tensor
    inputs: Tensor
    target: Tensor

    @property
    def entries(self) -> int:
        """Number of values of the parameter."""
        return self.target[0].numel()

    def unlikelihood(self) -> Tensor:
        """Materialise the gradient; see `FormedPiece.unlikelihood`."""
        return self.formed().unlikelihood()

    def formed(self) -> FormedPiece:
        """Materialise the dummy gradient."""
        return FormedPiece(self.name, self.output_gradients.mT @ self.inputs, self.target)

    def within(self, sent: Tensor) -> FormedPiece:
        """Materialise the dummy gradient and mask both; see `Piece.within`."""
        return self.formed().within(sent)

    def squared_distance(self) -> Tensor:
        """Compute the squared distance; accurate near zero, where its expansion cancels."""
        return _OuterResidual.apply(self.inputs, self.output_gradients, self.target)

    def sign_distance(self, gain: float) -> Tensor:
        """Compute the distance of smoothed signs of the materialised gradient; Shape (V)."""
        return self.formed().sign_distance(gain)

    def inner(self) -> Tensor:
        """Compute the inner product; Shape (V)."""
        return ((self.inputs @ self.target.mT) * self.output_gradients).sum((1, 2))

    def squared_norm(self) -> Tensor:
        """Compute the squared norm of the dummy gradient; Shape (V)."""
        return (
            (self.output_gradients @ self.output_gradients.mT) * (self.inputs @ self.inputs.mT)
        ).sum((1, 2))

    def target_squared_norm(self) -> Tensor:
        """Compute the squared norm of the observed gradient; Shape (V)."""
        return torch.linalg.vector_norm(rows(self.target), dim=1).square()


class _OuterResidual(torch.autograd.Function):
    """Squared norm of D^T A - G by victim, its residual computed block by block in one buffer."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, output_gradients: Tensor, target: Tensor) -> Tensor:
        victims, rows, columns = target.shape
        group = max(1, min(victims, BLOCK_ENTRIES // (rows * columns)))
        height = max(1, min(rows, BLOCK_ENTRIES // columns))
        buffer = target.new_empty(group * height * columns)
        total = target.new_zeros(victims)
        output_slopes, input_slopes = torch.zeros_like(output_gradients), torch.zeros_like(inputs)
        for start in range(0, victims, group):
            group_rows = slice(start, start + group)
            for top in range(0, rows, height):
                band = slice(top, top + height)
                expected, grad_outputs = (
                    target[group_rows, band],
                    output_gradients[group_rows, :, band],
                )
                residual = buffer[: expected.numel()].view(expected.shape)
                torch.bmm(grad_outputs.mT, inputs[group_rows], out=residual)
                residual -= expected
                flat = residual.flatten(1)[:, None]
                total[group_rows] += (flat @ flat.mT).flatten()
                output_slopes[group_rows, :, band] = inputs[group_rows] @ residual.mT
                input_slopes[group_rows] += grad_outputs @ residual
        ctx.save_for_backward(input_slopes, output_slopes)
        return total

    @staticmethod
    def backward(ctx: Any, *outputs: Any) -> tuple[Tensor, Tensor, None]:
        input_slopes, output_slopes = ctx.saved_tensors
        weight = 2 * outputs[0][:, None, None]
        return weight * input_slopes, weight * output_slopes, None
