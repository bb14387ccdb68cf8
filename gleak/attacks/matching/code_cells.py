"""Cells of a code: the gradients that a client may have computed, given what it sent of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Self

from typing_extensions import override

from gleak.artifacts.encodings import Encoded, Quantized, Rounded, Signs
from gleak.attacks.matching.distances.base import Piece
from gleak.attacks.matching.pieces import FLOOR, FormedPiece, rows
from gleak.core.lazy import torch

LEAST_PROBABILITY = 0.3
"""Probability below which minus its logarithm is continued by a line, to be finite everywhere."""


@dataclass(frozen=True)
class Cell(ABC):
    """Code of one parameter of V victims."""

    def at(self, index: Any) -> Self:
        """Return the code of some victims or rounds; an index of the axes (V, R)."""
        return replace(self, **{one.name: getattr(self, one.name)[index] for one in fields(self)})

    def to(self, device: torch.device) -> Self:
        """Return the code on a device."""
        return replace(
            self, **{one.name: getattr(self, one.name).to(device) for one in fields(self)}
        )

    def scaled(self, factor: float) -> Self:
        """Return the code of the same values in another unit, each ``factor`` times as large."""
        return replace(
            self, **{one.name: getattr(self, one.name) * abs(factor) for one in fields(self)}
        )

    @abstractmethod
    def unlikelihood(self, gradient: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Compute minus the logarithm of the probability of each value's code.

        Args:
            gradient: Shape (V, M).
            target: the decoded values, Shape (V, M).

        Returns:
            Shape (V, M), zero where the code is certain.
        """


@dataclass(frozen=True)
class NearestCell(Cell):
    """Values rounded to the nearest level: certain up to half a level, impossible beyond.

    An impossible value counts by its squared distance to the cell, in levels.

    Args:
        step: distance of two levels; Shape (V, R), or (V) of one round.
    """

    step: torch.Tensor

    @override
    def unlikelihood(self, gradient: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return (_levels(gradient - target, self.step) - 0.5).clamp_min(0).square()


@dataclass(frozen=True)
class RandomCell(Cell):
    """Values rounded up or down at random: a value u levels away is sent with probability 1 - u.

    The logarithm is continued by its tangent below `LEAST_PROBABILITY` (ROG Equation 7). A value of
    less than 0.23 levels is therefore likeliest, on average, for a gradient of zero, which leads
    searches astray where most values are so small (docs/results/rog.md).

    Args:
        step: distance of two levels; Shape (V, R), or (V) of one round.
    """

    step: torch.Tensor

    @override
    def unlikelihood(self, gradient: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        probability = 1 - _levels(gradient - target, self.step)
        missing = (LEAST_PROBABILITY - probability).clamp_min(0) / LEAST_PROBABILITY
        return missing - probability.clamp_min(LEAST_PROBABILITY).log()


@dataclass(frozen=True)
class SignCell(Cell):
    """Signs: any magnitude is possible.

    A value of another sign counts by its square, relative to the gradient's mean square, as signs
    have no unit.
    """

    @override
    def unlikelihood(self, gradient: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        wrong = gradient.where(gradient.sign() != target.sign(), 0)
        return wrong.square() / gradient.square().mean(1, keepdim=True).clamp_min(FLOOR)


def _levels(values: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
    """Return magnitudes in levels; a step of zero, that of a gradient of zeros, counts as one."""
    return values.abs() / step.where(step > 0, 1)[:, None]


@dataclass(frozen=True)
class CodedPiece(FormedPiece):
    """Pair of gradients of which the observed one was sent in a code.

    Args:
        cell: the code.
    """

    cell: Cell

    @override
    def unlikelihood(self) -> torch.Tensor:
        """Compute minus the logarithm of the probability of all codes; Shape (V)."""
        return self.cell.unlikelihood(rows(self.gradient), rows(self.target)).sum(1)


def coded(pieces: Sequence[Piece], cells: Mapping[str, Cell]) -> list[Piece]:
    """Add the codes of parameters to their pairs; those without one are unchanged."""
    return [_coded(piece.formed(), cells) if piece.name in cells else piece for piece in pieces]


def _coded(piece: FormedPiece, cells: Mapping[str, Cell]) -> CodedPiece:
    return CodedPiece(piece.name, piece.gradient, piece.target, cells[piece.name])


def cells_of(update: Mapping[str, Encoded], device: torch.device) -> dict[str, Cell]:
    """Return the codes of the parameters that were sent as such, with axes (V, R).

    Args:
        update: by parameter, as sent.
        device: of the codes.
    """
    cells: dict[str, Cell] = {}
    for name, encoded in update.items():
        if isinstance(encoded, Quantized):
            kind = NearestCell if isinstance(encoded, Rounded) else RandomCell
            cells[name] = kind(torch.from_numpy(encoded.scales).to(device))
        elif isinstance(encoded, Signs):
            cells[name] = SignCell()
    return cells
