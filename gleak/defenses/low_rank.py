"""Structured update: the product of two thin matrices."""

from __future__ import annotations

from typing import Literal

import numpy as np
from typing_extensions import override

from gleak.artifacts.encodings import Encoded, Factored
from gleak.core.lazy import torch
from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.defenses.base import DefenseSpec, Memory, encode


@register("low_rank")
class LowRank(DefenseSpec):
    """The update H of a weight, reshaped to a matrix (out, rest), is sent as A B of low rank.

    The columns of A are orthonormal and B = A^T H, so A B is the projection of H on their span.
    With a random basis, drawn anew for each client and round, this is what a client learns that
    keeps A fixed and trains B from zero in one local step (Konecny et al. draw A without making it
    orthonormal). The best basis gives the nearest matrix of that rank, which a client can only find
    after computing all of H. Parameters with one axis, and matrices with a side no longer than the
    rank, are sent unchanged.
    """

    source = "Konecny et al. 2016 section 2; CPL section 2.1"

    rank: int = parameter(4, "largest rank of an update", ge=1)
    basis: Literal["random", "best"] = parameter(
        "random", "columns of A: random directions, or the leading left singular vectors of H"
    )

    @override
    def protect(
        self, update: dict[str, torch.Tensor], generator: torch.Generator, memory: Memory
    ) -> dict[str, Encoded]:
        return {name: self._send(value, generator) for name, value in update.items()}

    def _send(self, value: torch.Tensor, generator: torch.Generator) -> Encoded:
        if value.ndim < 3 or min(value.shape[1], value[0, 0].numel()) <= self.rank:
            return encode(value)
        matrix = value.flatten(2)
        left = self._basis(matrix, generator)
        right = left.mT @ matrix
        shape = np.array(value.shape[1:], dtype=np.int64)
        return Factored(left.numpy()[None], right.numpy()[None], shape)

    def _basis(self, matrix: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        """Return orthonormal columns for each round; Shape (R, out, rank)."""

        if self.basis == "best":
            return torch.linalg.svd(matrix, full_matrices=False).U[..., : self.rank]
        directions = matrix.new_empty(*matrix.shape[:2], self.rank).normal_(generator=generator)
        return torch.linalg.qr(directions).Q
