"""Sparsification: only the largest values are sent."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, Literal

import numpy as np

from gleak.artifacts.encodings import Encoded, Sparse
from gleak.defenses.base import DefenseSpec, Memory
from gleak.registry import register
from gleak.spec import knob

if TYPE_CHECKING:
    from torch import Generator, Tensor


@register("topk")
class TopK(DefenseSpec):
    """The share of values with the largest magnitude is sent, with their positions."""

    source = "Aji and Heafield 2017; ROG section 4"

    keep: float = knob(0.05, "share of values that is sent", source="ROG Figure 6", gt=0, le=1)
    scope: Literal["tensor", "global"] = knob("tensor", "what a value is compared with")

    def protect(
        self, update: dict[str, Tensor], generator: Generator, memory: Memory
    ) -> dict[str, Encoded]:
        """See `DefenseSpec.protect`; at least one value is sent of what is compared."""
        flat = {name: value.flatten(1).numpy() for name, value in update.items()}
        chosen = self._per_tensor(flat) if self.scope == "tensor" else self._global(flat)
        return {
            name: _sparse(flat[name], chosen[name], tuple(update[name].shape[1:])) for name in flat
        }

    def _per_tensor(self, flat: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {name: self._largest(values) for name, values in flat.items()}

    def _global(self, flat: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        joined = self._largest(np.concatenate(list(flat.values()), axis=1))
        edges = np.cumsum([values.shape[1] for values in flat.values()])[:-1]
        return dict(zip(flat, np.split(joined, edges, axis=1), strict=True))

    def _largest(self, values: np.ndarray) -> np.ndarray:
        """Mask of the values to send in each round; Shape (R, M)."""
        count = math.ceil(Fraction(str(self.keep)) * values.shape[1])
        order = np.argsort(-np.abs(values), axis=1, kind="stable")[:, :count]
        mask = np.zeros(values.shape, dtype=bool)
        np.put_along_axis(mask, order, True, axis=1)
        return mask


def _sparse(values: np.ndarray, mask: np.ndarray, shape: tuple[int, ...]) -> Sparse:
    """One victim's parameter as positions and values, rows filled up to equal length."""
    width = int(mask.sum(1).max())
    indices = np.full((1, len(values), width), -1, dtype=np.int64)
    kept = np.zeros((1, len(values), width), dtype=values.dtype)
    for row, (line, sent) in enumerate(zip(values, mask, strict=True)):
        positions = np.flatnonzero(sent)
        indices[0, row, : len(positions)] = positions
        kept[0, row, : len(positions)] = line[positions]
    return Sparse(indices, kept, np.array(shape, dtype=np.int64))
