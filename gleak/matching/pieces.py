"""Dummy gradients beside observed ones, parameter by parameter (see `distances.base.Piece`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

BLOCK_ENTRIES = 2**18


def _sum_squares(values: Tensor) -> Tensor:
    flat = values.flatten(1)
    return (flat * flat).sum(1)


@dataclass(frozen=True)
class FormedPiece:
    """A gradient with all its entries.

    Args:
        name: of the parameter.
        gradient: Shape (V, *shape), attached to the graph of the dummy inputs.
        target: Shape (V, *shape), the observed one.
    """

    name: str
    gradient: Tensor
    target: Tensor

    def within(self, sent: Tensor) -> FormedPiece:
        """Keep only the entries that were sent."""
        return FormedPiece(self.name, self.gradient * sent, self.target * sent)

    def squared_distance(self) -> Tensor:
        """Shape (V)."""
        return _sum_squares(self.gradient - self.target)

    def sign_distance(self, gain: float) -> Tensor:
        """Shape (V)."""
        return _sum_squares((gain * self.gradient).tanh() - self.target)

    def inner(self) -> Tensor:
        """Shape (V)."""
        return (self.gradient * self.target).flatten(1).sum(1)

    def squared_norm(self) -> Tensor:
        """Shape (V)."""
        return _sum_squares(self.gradient)

    def target_squared_norm(self) -> Tensor:
        """Shape (V)."""
        return torch.linalg.vector_norm(self.target.flatten(1), dim=1).square()


@dataclass(frozen=True)
class OuterPiece:
    """A dense layer's weight gradient D^T A, never formed as a whole.

    Its norm is sum((D D^T) * (A A^T)) and its inner product with the target G is
    sum((A G^T) * D), which take memory for N x N and N x out entries only.

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

    def formed(self) -> FormedPiece:
        """The same with all its entries."""
        return FormedPiece(self.name, self.output_gradients.mT @ self.inputs, self.target)

    def within(self, sent: Tensor) -> FormedPiece:
        """Form the gradient, and keep only the entries that were sent."""
        return self.formed().within(sent)

    def squared_distance(self) -> Tensor:
        """Shape (V); exact near zero, where the expanded square would cancel."""
        return _OuterResidual.apply(self.inputs, self.output_gradients, self.target)

    def sign_distance(self, gain: float) -> Tensor:
        """Shape (V); here the gradient has to be formed."""
        return self.formed().sign_distance(gain)

    def inner(self) -> Tensor:
        """Shape (V)."""
        return ((self.inputs @ self.target.mT) * self.output_gradients).sum((1, 2))

    def squared_norm(self) -> Tensor:
        """Shape (V)."""
        return (
            (self.output_gradients @ self.output_gradients.mT) * (self.inputs @ self.inputs.mT)
        ).sum((1, 2))

    def target_squared_norm(self) -> Tensor:
        """Shape (V)."""
        return torch.linalg.vector_norm(self.target.flatten(1), dim=1).square()


class _OuterResidual(torch.autograd.Function):
    """Squared norm of D^T A - G per victim, its residual formed block by block in one buffer."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, output_gradients: Tensor, target: Tensor) -> Tensor:
        victims, rows, columns = target.shape
        group = max(1, min(victims, BLOCK_ENTRIES // (rows * columns)))
        height = max(1, min(rows, BLOCK_ENTRIES // columns))
        buffer = target.new_empty(group * height * columns)
        total = target.new_zeros(victims)
        along_backs, along_inputs = torch.zeros_like(output_gradients), torch.zeros_like(inputs)
        for start in range(0, victims, group):
            some = slice(start, start + group)
            for top in range(0, rows, height):
                band = slice(top, top + height)
                wanted, back = target[some, band], output_gradients[some, :, band]
                residual = buffer[: wanted.numel()].view(wanted.shape)
                torch.bmm(back.mT, inputs[some], out=residual)
                residual -= wanted
                flat = residual.flatten(1)[:, None]
                total[some] += (flat @ flat.mT).flatten()
                along_backs[some, :, band] = inputs[some] @ residual.mT
                along_inputs[some] += back @ residual
        ctx.save_for_backward(along_inputs, along_backs)
        return total

    @staticmethod
    def backward(ctx: Any, *outputs: Any) -> tuple[Tensor, Tensor, None]:
        along_inputs, along_backs = ctx.saved_tensors
        weight = 2 * outputs[0][:, None, None]
        return weight * along_inputs, weight * along_backs, None
