"""Lengths of whole updates."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def lengths(update: dict[str, Tensor]) -> Tensor:
    """Length (L2) of all parameters together as one vector, in double precision; Shape (R).

    Args:
        update: for each parameter, Shape (R, *shape).
    """
    import torch

    flat = [value.reshape(len(value), -1) for value in update.values()]
    each = [torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64) for rows in flat]
    return torch.linalg.vector_norm(torch.stack(each), dim=0)


def of_rounds(numbers: Tensor, value: Tensor) -> Tensor:
    """One number of each round, to be multiplied with a parameter; Shape (R) to (R, 1, ...)."""
    return numbers.reshape(-1, *[1] * (value.ndim - 1))


def scaled(value: Tensor, factors: Tensor) -> Tensor:
    """A parameter times a factor for each round, whose type may be wider; of its own type.

    Args:
        value: Shape (R, *shape).
        factors: Shape (R).
    """
    return (value * of_rounds(factors, value)).to(value.dtype)
