"""The part of a layer that audits judge, and its weights without the scales of its lines.

A line is a row (what one neuron or filter takes) or a column (what one input gives to all of them).
Weight decay shrinks lines that no sample trains: inputs that are always zero, neurons that are
never active. What is left of them is rounding, and says nothing about the server.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

BLOCK_VALUES = 2**22
FAINT = 0.1
WITHOUT_INFLUENCE = 1e-3
ROUNDING = 1e-6
FADED = 1e-3
LARGE = 0.9
FEWEST_VALUES = 16
ROUNDS = 3
SCALINGS = 8


@dataclass(frozen=True)
class Reach:
    """What a layer's rows and columns do with the samples that were tried.

    Args:
        gradients: the largest magnitude of a gradient in each row, and in each column; 0 if no
            sample reaches the line: then an update shows nothing of them there.
        influences: likewise, of weight times gradient, by which the logits change if the weight is
            taken out. It stays as it is where a layer's weights are scaled down and those of the
            next one up.
        most: the largest influence in the whole network; what is below a millionth of it is lost
            in rounding.
    """

    gradients: tuple[NDArray, NDArray]
    influences: tuple[NDArray, NDArray]
    most: float = 0.0

    @property
    def largest(self) -> float:
        """The largest influence of a row, infinite ones left out."""
        rows, _ = self.influences
        return float(rows[np.isfinite(rows)].max(initial=0))

    @property
    def counts(self) -> bool:
        """Whether a row has an influence that is not lost in rounding."""
        rows, _ = self.influences
        return bool((rows > ROUNDING * self.most).any())

    @classmethod
    def of(cls, weights: NDArray, gradients: NDArray) -> Reach:
        """Of the weights of a layer and their gradients; what overflows is reached.

        Args:
            weights: Shape (out, in).
            gradients: same Shape.
        """
        rows, columns = np.zeros((2, weights.shape[0])), np.zeros((2, weights.shape[1]))
        for some in row_blocks(weights):
            magnitudes = np.nan_to_num(np.abs(gradients[some]), nan=np.inf, posinf=np.inf)
            sizes, influences = np.abs(weights[some]), np.zeros_like(magnitudes)
            np.multiply(sizes, magnitudes, out=influences, where=sizes > 0)
            for kind, values in enumerate((magnitudes, influences)):
                rows[kind, some], largest = _largest(values)
                columns[kind] = np.maximum(columns[kind], largest)
        return cls((rows[0], columns[0]), (rows[1], columns[1]))

    def __or__(self, other: Reach) -> Reach:
        """Of both samples."""
        gradients = map(np.maximum, self.gradients, other.gradients)
        influences = map(np.maximum, self.influences, other.influences)
        return Reach((next(gradients), next(gradients)), (next(influences), next(influences)))

    @property
    def reached(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Which rows, and which columns, a sample reaches."""
        rows, columns = self.gradients
        return rows > 0, columns > 0

    @property
    def influential(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Which of the rows, and of the columns, that a sample reaches have influence."""
        (rows, columns), reached = self.influences, self.reached
        return (
            above_large_share(rows[reached[0]], WITHOUT_INFLUENCE, ROUNDING * self.most),
            above_large_share(columns[reached[1]], WITHOUT_INFLUENCE, ROUNDING * self.most),
        )


def above_large_share(largest: NDArray, share: float, least: float) -> NDArray[np.bool_]:
    """Which values are beyond both a bound and a share of the large ones (their 90% quantile)."""
    present = largest[(largest > 0) & np.isfinite(largest)]
    large = float(np.quantile(present, LARGE)) if present.size else 0.0
    return np.asarray(largest > max(least, share * large))


def large_lines(weights: NDArray) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which rows, and which columns, have a weight that is not faint.

    It is if it is below a tenth of what large rows or columns have, or below a thousandth of the
    weights that layers with so many inputs begin with.
    """
    least = FADED / np.sqrt(max(1, weights.shape[1]))
    rows, columns = (above_large_share(lines, FAINT, least) for lines in _largest(weights))
    return rows, columns


def used_submatrix(weights: NDArray) -> NDArray:
    """The rows and columns that are not faint; a view where nothing is left out."""
    for _ in range(ROUNDS):
        weights = part(weights, *large_lines(weights))
    return weights


def filled_submatrix(weights: NDArray) -> NDArray:
    """The rows and columns with 16 weights that are not zero; those shorter than that stay.

    What pruning leaves of a nearly empty line would outweigh the others once it is balanced.
    """
    for axis in (0, 1):
        if weights.shape[1 - axis] >= FEWEST_VALUES:
            filled = np.count_nonzero(weights, axis=1 - axis) >= FEWEST_VALUES
            weights = weights if filled.all() else np.compress(filled, weights, axis=axis)
    return weights


def part(weights: NDArray, rows: NDArray[np.bool_], columns: NDArray[np.bool_]) -> NDArray:
    """Some rows and columns; a view where nothing is left out."""
    weights = weights if rows.all() else weights[rows]
    return weights if columns.all() else weights[:, columns]


def _largest(weights: NDArray) -> tuple[NDArray, NDArray]:
    """The largest magnitude of each row, and of each column, without a copy."""
    rows, columns = (
        np.maximum(weights.max(axis=axis, initial=0), -weights.min(axis=axis, initial=0))
        for axis in (1, 0)
    )
    return rows, columns


@dataclass(frozen=True)
class Balanced:
    """A matrix whose rows and columns are scaled to the same root mean square.

    So a line that is small as a whole looks like any other, and a line that one weight makes up
    stands out whatever its size. Lines of zeros stay as they are.

    Args:
        weights: before they are scaled; Shape (out, in).
        rows: factor of each; Shape (out).
        columns: factor of each; Shape (in).
    """

    weights: NDArray
    rows: NDArray
    columns: NDArray

    def blocks(self) -> Iterator[NDArray]:
        """Some scaled rows at a time, in double precision."""
        for some in row_blocks(self.weights):
            yield self.rows[some, None] * self.weights[some] * self.columns


def balance(weights: NDArray) -> Balanced:
    """Scale rows and columns in turn (Sinkhorn and Knopp 1967, of the squares)."""
    rows, columns = np.ones(weights.shape[0]), np.ones(weights.shape[1])
    for _ in range(SCALINGS):
        rows = _factors(_square_sums(weights, columns, 1), weights.shape[1])
        columns = _factors(_square_sums(weights, rows, 0), weights.shape[0])
    return Balanced(weights, rows, columns)


def _square_sums(weights: NDArray, factors: NDArray, axis: int) -> NDArray:
    """Of each row (axis 1) or column (axis 0), the other lines scaled."""
    squares, sums = factors**2, np.zeros(weights.shape[1 - axis])
    for some in row_blocks(weights):
        block = np.square(weights[some], dtype=float)
        if axis:
            sums[some] = block @ squares
        else:
            sums += squares[some] @ block
    return sums


def _factors(square_sums: NDArray, count: int) -> NDArray:
    present = square_sums > 0
    factors = np.ones(len(square_sums))
    factors[present] = np.sqrt(count / square_sums[present])
    return factors


def row_blocks(weights: NDArray) -> Iterator[slice]:
    """Ranges of some rows each, so that what is computed of them takes little memory."""
    step = max(1, BLOCK_VALUES // max(1, weights.shape[1]))
    return (slice(at, at + step) for at in range(0, len(weights), step))


@dataclass(frozen=True)
class Concentration:
    """How concentrated the lines of one side are.

    Args:
        effective: how many weights of equal size each line is worth, sum(w^2)^2 / sum(w^4): 1 if
            one weight makes it up, all if they are of one size; 0 of lines of zeros.
        filled: how many of its weights are not zero.
    """

    effective: NDArray
    filled: NDArray


def concentration(blocks: Iterator[NDArray]) -> tuple[Concentration, Concentration]:
    """Of the rows and of the columns of a matrix that comes in blocks of rows."""
    rows, columns = [np.zeros((3, 0))], np.zeros((3, 1))
    for block in blocks:
        squares = block**2
        sums = [squares, squares**2, block != 0]
        rows.append(np.stack([each.sum(axis=1) for each in sums]))
        columns = columns + np.stack([each.sum(axis=0) for each in sums])
    return _concentration(np.concatenate(rows, axis=1)), _concentration(columns)


def _concentration(sums: NDArray) -> Concentration:
    second, fourth, filled = sums
    effective = np.divide(second**2, fourth, out=np.zeros_like(second), where=fourth > 0)
    return Concentration(effective, filled)
