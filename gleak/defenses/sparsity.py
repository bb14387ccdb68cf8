"""Choosing values by share and packing those that are sent."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, Literal

import numpy as np

from gleak.artifacts.encodings import Sparse

if TYPE_CHECKING:
    from torch import Tensor

Scope = Literal["tensor", "global"]


def exact(share: float) -> Fraction:
    """The share as it is written: 0.07 of 100 values are 7, which floats round up to 8."""
    return Fraction(str(share))


def counted(share: Fraction, size: int) -> int:
    """How many of ``size`` values a share is; rounded up, so that of any share one is sent."""
    return math.ceil(share * size)


def send_largest(update: dict[str, Tensor], share: Fraction, scope: Scope) -> dict[str, Sparse]:
    """The values of largest magnitude; of equal ones the first.

    Args:
        update: for each parameter, Shape (R, *shape).
        share: of the values, in (0, 1].
        scope: whether a value is compared with those of its own tensor or with all of its round.

    Returns:
        The same parameters, victim axis of size 1 in front; at least one value of what is compared.
    """
    flat = {name: value.reshape(len(value), -1).numpy() for name, value in update.items()}
    if scope == "global":
        chosen = _split(_largest(np.concatenate(list(flat.values()), axis=1), share), flat)
    else:
        chosen = {name: _largest(values, share) for name, values in flat.items()}
    return {name: pack(value, chosen[name]) for name, value in update.items()}


def _split(joined: np.ndarray, flat: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    edges = np.cumsum([values.shape[1] for values in flat.values()])[:-1]
    return dict(zip(flat, np.split(joined, edges, axis=1), strict=True))


def _largest(values: np.ndarray, share: Fraction) -> np.ndarray:
    """Mask of the values to send in each round; Shape (R, M)."""
    count = counted(share, values.shape[1])
    order = np.argsort(-np.abs(values), axis=1, kind="stable")[:, :count]
    mask = np.zeros(values.shape, dtype=bool)
    np.put_along_axis(mask, order, True, axis=1)
    return mask


def pack(value: Tensor, mask: np.ndarray) -> Sparse:
    """One client's parameter as positions and values, rows filled up to equal length.

    Args:
        value: Shape (R, *shape).
        mask: which of the flattened values are sent; Shape (R, M).
    """
    flat, width = value.reshape(mask.shape).numpy(), int(mask.sum(1).max())
    indices = np.full((1, len(flat), width), -1, dtype=np.int64)
    kept = np.zeros((1, len(flat), width), dtype=flat.dtype)
    for row, (line, sent) in enumerate(zip(flat, mask, strict=True)):
        positions = np.flatnonzero(sent)
        indices[0, row, : len(positions)] = positions
        kept[0, row, : len(positions)] = line[positions]
    return Sparse(indices, kept, np.array(value.shape[1:], dtype=np.int64))
