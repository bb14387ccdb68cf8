"""Codes that values are sent in, such as rounded ones, and pairs of gradients of which one was."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

from gleak.artifacts import encodings
from gleak.attacks.matching.pieces import (
    FLOOR,
    Errors,
    FormedPiece,
    Piece,
    is_narrow,
    regularised,
    rows,
    split_errors,
)
from gleak.core.lazy import torch

CUT = 1e-5
"""Relative distance to a bound below which a value was cut to it, in single precision."""
LEAST_PROBABILITY = 0.3
"""Probability below which minus its logarithm is continued by a line, to be finite everywhere."""


@dataclass(frozen=True)
class QuantisationCell(ABC):
    """Code of one parameter of V victims; its fields are tensors of Shape (V, R), or (V)."""

    is_interval: ClassVar[bool] = False
    """True if the code consists of the interval of each value."""

    @property
    def variance(self) -> torch.Tensor | None:
        """Variance of the error of a value, which its code bounds; Shape (V, R), or (V).

        None if the error is zero for some values, random, or not bounded.
        """
        return None

    def at(self, index: Any) -> Self:
        """Return the code of some victims or rounds; an index of the axes (V, R)."""
        return self._each(lambda value: value[index])

    def to(self, device: torch.device) -> Self:
        """Return the code on a device."""
        return self._each(lambda value: value.to(device))

    def scaled(self, factor: float) -> Self:
        """Return the code of the same values in another unit, each ``factor`` times as large."""
        return self._each(lambda value: value * abs(factor))

    def _each(self, change: Callable[[torch.Tensor], torch.Tensor]) -> Self:
        return replace(self, **{name: change(value) for name, value in vars(self).items()})

    def coded(self, values: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        """Return what a server would receive of other values in this code; Shape (V, M).

        Args:
            values: Shape (V, M).
            draws: uniform random numbers in [0, 1), for codes that round at random; Shape (V, M).

        Raises:
            NotImplementedError: the code is made for the values that were sent (intervals).
        """
        raise NotImplementedError

    @abstractmethod
    def unlikelihood(self, gradient: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Compute minus the logarithm of the probability of each value's code; Shape (V, M)."""

    def residual(self, gradient: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Compute the distance of each value from those that its code leaves open; Shape (V, M)."""
        return gradient - target


@dataclass(frozen=True)
class NearestCell(QuantisationCell):
    """Values rounded to the nearest level, ``step`` from the next one: certain up to half a level.

    An impossible value, beyond that, counts by its squared distance to the cell, in levels.
    """

    step: torch.Tensor

    @property
    def variance(self) -> torch.Tensor:
        """Variance of the error of a value, which is uniform in its cell; Shape (V, R), or (V)."""
        return self.step.square() / 12

    def coded(self, values: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        step = self.step[:, None]
        return step * (values / step).round().nan_to_num()

    def unlikelihood(self, gradient: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return (_levels(gradient - target, self.step) - 0.5).clamp_min(0).square()

    def residual(self, gradient: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        half = self.step[:, None] / 2
        return gradient - gradient.clamp(target - half, target + half)


@dataclass(frozen=True)
class ClippedCell(QuantisationCell):
    """Values that were cut to [-bound, bound]: one at an end stands for all beyond it.

    An impossible value counts by its squared distance, in bounds.
    """

    bound: torch.Tensor

    def coded(self, values: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        return values.clamp(-self.bound[:, None], self.bound[:, None])

    def unlikelihood(self, gradient: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return _levels(self.residual(gradient, target), self.bound).square()

    def residual(self, gradient: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        beyond = (target.abs() >= self.bound[:, None] * (1 - CUT)) * target.sign()
        return (gradient - target) * ((gradient - target) * beyond <= 0)


@dataclass(frozen=True)
class RandomCell(QuantisationCell):
    """Values rounded up or down at random: a value u levels away is sent with probability 1 - u.

    The logarithm is continued by its tangent below `LEAST_PROBABILITY` (ROG Equation 7). A value of
    less than 0.23 levels is therefore likeliest, on average, for a gradient of zero, which leads
    searches astray where most values are so small (docs/results/rog.md).
    """

    step: torch.Tensor

    def coded(self, values: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        step = self.step[:, None]
        return step * (values / step + draws).floor().nan_to_num()

    def unlikelihood(self, gradient: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        probability = 1 - _levels(gradient - target, self.step)
        missing = (LEAST_PROBABILITY - probability).clamp_min(0) / LEAST_PROBABILITY
        return missing - probability.clamp_min(LEAST_PROBABILITY).log()


@dataclass(frozen=True)
class IntervalCell(QuantisationCell):
    """Values in known intervals, whose ends may be infinite; Shape (V, R, *shape), or (V, *shape).

    A value outside of its interval counts by its squared distance, relative to the mean square.
    """

    is_interval: ClassVar[bool] = True

    low: torch.Tensor
    high: torch.Tensor

    @property
    def middle(self) -> torch.Tensor:
        """Middle of each interval, or its finite end, or zero."""
        finite = [end.where(end.isfinite(), 0) for end in (self.low, self.high)]
        return sum(finite) / (self.low.isfinite() & self.high.isfinite()).add(1)

    @property
    def width(self) -> torch.Tensor:
        """Width of each interval; infinite without both ends."""
        return self.high - self.low

    @property
    def empty(self) -> torch.Tensor:
        """True where an interval contains no number, as it begins or ends at the wrong infinity."""
        return (self.low == torch.inf) | (self.high == -torch.inf)

    def widened(self) -> Self:
        """Return the same intervals, those that are empty extended to zero."""
        low = self.low.where(self.low < torch.inf, 0)
        return replace(self, low=low, high=self.high.where(self.high > -torch.inf, 0))

    def scaled(self, factor: float) -> Self:
        ends = (self.low * factor, self.high * factor)
        low, high = ends if factor > 0 else ends[::-1]
        return replace(self, low=low, high=high)

    def unlikelihood(self, gradient: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        mean_square = target.square().mean(1, keepdim=True).clamp_min(FLOOR)
        return self.residual(gradient, target).square() / mean_square

    def residual(self, gradient: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return gradient - gradient.clamp(rows(self.low), rows(self.high))


@dataclass(frozen=True)
class SignCell(QuantisationCell):
    """Signs, which have no unit: any magnitude is possible.

    A value of another sign counts by its square, relative to the gradient's mean square, and zero,
    such as that of an inactive ReLU, as one of the mean square.
    """

    def coded(self, values: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        return values.sign()

    def unlikelihood(self, gradient: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return self.residual(gradient, target).square()

    def residual(self, gradient: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        wrong = gradient.where(gradient.sign() != target.sign(), 0)
        relative = wrong / gradient.square().mean(1, keepdim=True).clamp_min(FLOOR).sqrt()
        return relative - target.where(gradient == 0, 0)


def _levels(values: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
    """Return magnitudes in levels; a step of zero, that of a gradient of zeros, counts as one."""
    return values.abs() / step.where(step > 0, 1)[:, None]


@dataclass(frozen=True)
class CodedPiece(FormedPiece):
    """Pair of gradients of which the observed one was sent in a code, ``cell``."""

    cell: QuantisationCell = field(kw_only=True)

    def unlikelihood(self) -> torch.Tensor:
        """Compute minus the logarithm of the probability of all codes; Shape (V)."""
        return self.cell.unlikelihood(rows(self.gradient), rows(self.target)).sum(1)

    def scaled(self, factors: torch.Tensor) -> FormedPiece:
        """Return the same pair: rounded values show the scale, and signs have none."""
        return self

    def residual(self) -> torch.Tensor:
        residual = self.cell.residual(rows(self.gradient), rows(self.target))
        return residual.view_as(self.gradient)

    def squared_errors(self) -> Sequence[Errors]:
        """Compute the squared errors of what was sent, apart where their size may differ.

        That of a row of a dense layer whose unit is active by mistake is not in the span of the
        inputs A where some values are still in their cells. If a row's squared error e exceeds that
        of rounding in N directions, e0, the row D^T A is therefore replaced by
        (1 - s) D^T A + s T A, s = 1 - e0 / e, with the projection T A of what was sent on the span:
        what is changed is an error in the span. Values that are smaller than their rounding tell
        too little of T.
        """
        variance = self.cell.variance
        if variance is None or self.factors is None or is_narrow(self.factors[1]):
            return super().squared_errors()
        outputs, inputs = self.factors
        squared, along = self.errors_of_rows(outputs, inputs)
        least = len(inputs[0]) * variance[:, None].clamp_min(FLOOR)
        told = variance * self.entries < self.target_squared_norm()
        share = (1 - least / squared.maximum(least)) * told[:, None]
        changed = torch.zeros_like(squared)
        places = (share > 0).nonzero(as_tuple=True)
        found = [
            self._projected(victim, outputs[victim], inputs[victim], share[victim])
            for victim in places[0].unique().tolist()
        ]
        if found:
            own, products, moved = (torch.cat(parts) for parts in zip(*found, strict=True))
            squared, along = squared.index_put(places, own), along.index_put(places, products)
            changed = changed.index_put(places, moved)
        gram = (inputs @ inputs.mT)[:, None]
        within, outside = split_errors(squared.sum(1), self.counts, along, gram)
        return [within._replace(squared=within.squared + changed.T), outside]

    def _projected(
        self, victim: int, outputs: torch.Tensor, inputs: torch.Tensor, share: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Move the rows of one victim to the projections of what was sent, where the share is > 0.

        Args:
            victim: its position.
            outputs: gradients at the layer's outputs, D; Shape (N, out).
            inputs: of the layer, A; Shape (N, in).
            share: of the distance to the projection that each row is moved; Shape (out).

        Returns:
            The squared error of each row that was moved, its product with the inputs, and the
            square of the distance; Shape (P), (P, N) and (P).
        """
        chosen = (share > 0).nonzero()[:, 0]
        target, gram = self.target[victim, chosen], inputs @ inputs.mT
        fitted = torch.linalg.solve_ex(regularised(gram), inputs @ target.mT).result
        moved = share[chosen] * (fitted - outputs[:, chosen])
        factors = ((outputs[:, chosen] + moved)[None], inputs[None])
        gradient = (factors[0].mT @ factors[1]).detach()
        cell = self.cell.at(slice(victim, victim + 1))
        own = replace(self, gradient=gradient, target=target[None], factors=factors, cell=cell)
        squared, along = own.errors_of_rows(*factors)
        return squared[0], along[0], (moved * (gram @ moved)).sum(0)

    def follows(self, residual: torch.Tensor) -> torch.Tensor | None:
        """Return ones outside of the cells; None: every value has an error."""
        certain = isinstance(self.cell, NearestCell | ClippedCell | IntervalCell)
        return residual.sign().abs() if certain else None


def coded(pieces: Sequence[Piece], cells: Mapping[str, QuantisationCell]) -> list[Piece]:
    """Add the codes of parameters to their pairs; those without one are unchanged."""
    return [_coded(piece, cells[piece.name]) if piece.name in cells else piece for piece in pieces]


def _coded(piece: Piece, cell: QuantisationCell) -> CodedPiece:
    """Add a code to a pair; the errors of signs, which are no sizes, are not split by factors."""
    formed = piece.formed()
    if isinstance(cell, SignCell):
        formed = replace(formed, factors=None)
    return CodedPiece(**vars(formed), cell=cell)


def cells_of(
    update: Mapping[str, encodings.Encoded], device: torch.device
) -> dict[str, QuantisationCell]:
    """Return the codes of the parameters of an update that were sent as such, with axes (V, R)."""
    cells: dict[str, QuantisationCell] = {}
    for name, encoded in update.items():
        if isinstance(encoded, encodings.Clipped):
            cells[name] = ClippedCell(torch.from_numpy(encoded.bounds).to(device))
        elif isinstance(encoded, encodings.Quantized):
            kind = NearestCell if isinstance(encoded, encodings.Rounded) else RandomCell
            cells[name] = kind(torch.from_numpy(encoded.scales).to(device))
        elif isinstance(encoded, encodings.Signs):
            cells[name] = SignCell()
    return cells
