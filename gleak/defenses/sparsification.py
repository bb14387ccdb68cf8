"""Sparsification, and structured updates: part of the values, or a product of thin matrices."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Literal

import numpy as np

from gleak.artifacts.encodings import Encoded, Factored, Sparse
from gleak.core.errors import ArtifactError
from gleak.core.lazy import torch
from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.defenses.base import DefenseSpec, Memory, encode
from gleak.models.parameters import Tensors

Scope = Literal["tensor", "global"]
HIGHER_RANK = 0.01
"""Largest singular value beyond the rank of a product, relative to the first, by rounding."""
DETERMINED = 1e-4
"""Singular value of a product, relative to the first, below which its vector is one of rounding."""


class Sparsification(DefenseSpec):
    """Base of defences that send a part of the values, with their positions."""

    def encode_received(self, update: Tensors) -> dict[str, Encoded]:
        """Encode values that are not zero as those that were sent."""
        return {**encode_nonzero(update)}


@register("topk")
class TopK(Sparsification):
    """Only the share of values with the largest magnitude is sent, with their positions.

    The selected values of a gradient and of a difference of weights are the same. At least one
    value is sent per tensor or round, depending on ``scope``.
    """

    source = "Aji and Heafield 2017; ROG section 4"

    keep: float = parameter(0.05, "share of values that is sent", source="ROG Figure 6", gt=0, le=1)
    scope: Scope = parameter("tensor", "values compared with each other: a tensor's, or a round's")

    def protect(
        self, update: Tensors, generator: torch.Generator, memory: Memory
    ) -> dict[str, Encoded]:
        return {**encode_largest(update, Fraction(str(self.keep)), self.scope)}


@register("threshold")
class Threshold(Sparsification):
    """Values with a magnitude above a quantile are sent, the others are accumulated.

    A client adds the values not sent to its next update before it selects, so that nothing is lost
    but only delayed. In a first round this equals `topk` with a share of 1 - theta and the same
    scope. This is the part of Deep Gradient Compression that CPL describes; momentum correction,
    clipping and warm-up, which speed up the training, are left out. The threshold is a quantile, so
    the same values are sent of a gradient and of a difference of weights.
    """

    source = "Lin et al. 2018; CPL section 3.2"

    theta: float = parameter(
        0.4, "share of values that is not sent in a round", source="CPL Table 7", ge=0, lt=1
    )
    scope: Scope = parameter(
        "global",
        "values compared with each other: a tensor's, or a round's",
        source="ours; see docs/results/cpl.md",
    )

    def protect(
        self, update: Tensors, generator: torch.Generator, memory: Memory
    ) -> dict[str, Encoded]:
        rounds = zip(*(value.split(1) for value in update.values()), strict=True)
        sent = [self._send(dict(zip(update, one, strict=True)), memory) for one in rounds]
        joined = {name: Sparse.stack([one[name] for one in sent]) for name in update}
        return {
            name: Sparse(one.indices.swapaxes(0, 1), one.values.swapaxes(0, 1), one.shape)
            for name, one in joined.items()
        }

    def _send(self, update: Tensors, memory: Memory) -> dict[str, Sparse]:
        """Encode one round, by parameter Shape (1, *shape), and update the memory in place."""
        accumulated = {name: value + memory.get(name, 0) for name, value in update.items()}
        sent = encode_largest(accumulated, 1 - Fraction(str(self.theta)), self.scope)
        for name, encoded in sent.items():
            memory[name] = (accumulated[name] - torch.from_numpy(encoded.decode()[0]))[0]
        return sent


@register("random_mask")
class RandomMask(Sparsification):
    """Structured update: each parameter's update is restricted to random positions.

    Positions are drawn anew for each client and round. A client learns only the entries under its
    mask, so the others are lost and the values sent are not scaled up, unlike in a subsampled
    (sketched) update. We mask the update of the whole parameter, which is what a client learns
    under the mask in one local step. The client could send the seed of its mask; the server knows
    the positions either way. At least one value of each parameter is sent.
    """

    source = "Konecny et al. 2016 section 2; CPL section 2.1"

    keep: float = parameter(0.25, "share of values that is sent", gt=0, le=1)

    def protect(
        self, update: Tensors, generator: torch.Generator, memory: Memory
    ) -> dict[str, Encoded]:
        return {
            name: encode_sparse(value, self._mask(value, generator))
            for name, value in update.items()
        }

    def decode_alike(
        self, update: Tensors, sent: Mapping[str, Encoded], generator: torch.Generator
    ) -> Tensors:
        """Return the update at the positions that were sent."""
        return {
            name: value * torch.from_numpy(sent[name].decode()[0] != 0)
            for name, value in update.items()
        }

    def _mask(self, value: torch.Tensor, generator: torch.Generator) -> np.ndarray:
        """Draw a mask with the same number of positions in each round; Shape (R, M)."""
        rounds, size = len(value), value[0].numel()
        mask = np.zeros((rounds, size), dtype=bool)
        for row in mask:
            order = torch.randperm(size, generator=generator).numpy()
            row[order[: math.ceil(Fraction(str(self.keep)) * size)]] = True
        return mask


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

    def protect(
        self, update: Tensors, generator: torch.Generator, memory: Memory
    ) -> dict[str, Encoded]:
        def drawn(matrix: torch.Tensor) -> torch.Tensor:
            values = matrix.new_empty(*matrix.shape[:2], self.rank).normal_(generator=generator)
            return torch.linalg.qr(values).Q

        def leading(matrix: torch.Tensor) -> torch.Tensor:
            return torch.linalg.svd(matrix, full_matrices=False).U[..., : self.rank]

        basis = drawn if self.basis == "random" else leading
        return {name: self._product(value, basis) for name, value in update.items()}

    def encode_received(self, update: Tensors) -> dict[str, Encoded]:
        """Encode products by singular vectors in the span of the columns that were sent."""

        def spanning(matrix: torch.Tensor) -> torch.Tensor:
            left, sizes, _ = torch.linalg.svd(matrix, full_matrices=False)
            if (sizes[:, self.rank] > HIGHER_RANK * sizes[:, 0]).any():
                raise ArtifactError(
                    f"a weight has a higher rank than {self.rank}, so it was not sent under "
                    f"defense {self}; correct the rank, or leave the defence out"
                )
            found = int((sizes > DETERMINED * sizes[:, :1]).sum(1).max())
            return left[..., : min(max(found, 1), self.rank)]

        return {name: self._product(value, spanning) for name, value in update.items()}

    def decode_alike(
        self, update: Tensors, sent: Mapping[str, Encoded], generator: torch.Generator
    ) -> Tensors:
        """Return the projection of the update on the columns that were sent."""
        decoded = {**update}
        for name, own in sent.items():
            if isinstance(own, Factored):
                left = torch.from_numpy(own.left[0])
                projected = left @ (left.mT @ update[name].flatten(2))
                decoded[name] = projected.reshape(update[name].shape)
        return decoded

    def _product(
        self, value: torch.Tensor, basis: Callable[[torch.Tensor], torch.Tensor]
    ) -> Encoded:
        """Encode a weight by a basis (R, rows, K) of columns, which is a function of its matrix."""
        if value.ndim < 3 or min(value.shape[1], value[0, 0].numel()) <= self.rank:
            return encode(value)
        matrix = value.flatten(2)
        left = basis(matrix)
        right = left.mT @ matrix
        shape = np.array(value.shape[1:], dtype=np.int64)
        return Factored(left.numpy()[None], right.numpy()[None], shape)


def encode_largest(update: Tensors, share: Fraction, scope: Scope) -> dict[str, Sparse]:
    """Encode a share of values, those of largest magnitude in their scope, at least one.

    Ties are resolved in order of position. The share is the fraction that the user wrote: 0.07 of
    100 values are 7, not 8.
    """
    flat = {name: value.reshape(len(value), -1).numpy() for name, value in update.items()}
    if scope == "global":
        edges = np.cumsum([values.shape[1] for values in flat.values()])[:-1]
        joined = _largest(np.concatenate(list(flat.values()), axis=1), share)
        masks = dict(zip(flat, np.split(joined, edges, axis=1), strict=True))
    else:
        masks = {name: _largest(values, share) for name, values in flat.items()}
    return {name: encode_sparse(value, masks[name]) for name, value in update.items()}


def _largest(values: np.ndarray, share: Fraction) -> np.ndarray:
    """Return the mask of the largest values of each round; Shape (R, M)."""
    count = math.ceil(share * values.shape[1])
    order = np.argsort(-np.abs(values), axis=1, kind="stable")[:, :count]
    mask = np.zeros(values.shape, dtype=bool)
    np.put_along_axis(mask, order, True, axis=1)
    return mask


def encode_nonzero(update: Tensors) -> dict[str, Sparse]:
    """Encode the values that are not zero; by parameter Shape (R, *shape)."""
    return {
        name: encode_sparse(value, (value.reshape(len(value), -1) != 0).numpy())
        for name, value in update.items()
    }


def encode_sparse(value: torch.Tensor, mask: np.ndarray) -> Sparse:
    """Encode a parameter, (R, *shape), as positions and values that a mask, (R, M), selects.

    Rows are padded to equal length.
    """
    flat, width = value.reshape(mask.shape).numpy(), int(mask.sum(1).max())
    indices = np.full((1, len(flat), width), -1, dtype=np.int64)
    kept = np.zeros((1, len(flat), width), dtype=flat.dtype)
    for row, (line, sent) in enumerate(zip(flat, mask, strict=True)):
        positions = np.flatnonzero(sent)
        indices[0, row, : len(positions)] = positions
        kept[0, row, : len(positions)] = line[positions]
    return Sparse(indices, kept, np.array(value.shape[1:], dtype=np.int64))
