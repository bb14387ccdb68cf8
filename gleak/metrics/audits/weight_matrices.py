"""Selection and balancing of the weights that audits consider.

A line is a row (the inputs of one neuron or filter) or a column (the outputs of one input). Weight
decay shrinks lines that no sample trains: inputs that are always zero, neurons that are never
active. Only rounding errors remain, which carry no information about the server.
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
    """Gradients and influences of the client's samples in the rows and columns of a layer.

    Args:
        gradients: largest magnitude of a gradient in each row, and in each column; 0 if no sample
            reaches the line: an update then reveals nothing there.
        influences: likewise, of weight times gradient, the change of the logits if the weight is
            removed. It is invariant if a layer's weights are scaled down and those of the next up.
        network_maximum: largest influence in the whole network; values below a millionth of it are
            rounding errors.
    """

    gradients: tuple[NDArray, NDArray]
    influences: tuple[NDArray, NDArray]
    network_maximum: float = 0.0

    @property
    def largest(self) -> float:
        """Largest finite influence of a row."""
        rows, _ = self.influences
        return float(rows[np.isfinite(rows)].max(initial=0))

    @property
    def is_significant(self) -> bool:
        """True if a row has an influence above rounding errors."""
        rows, _ = self.influences
        return bool((rows > ROUNDING * self.network_maximum).any())

    @classmethod
    def from_gradients(cls, weights: NDArray, gradients: NDArray) -> Reach:
        """Compute the reach; Shapes (out, in). Values that overflow count as reached."""
        rows, columns = np.zeros((2, weights.shape[0])), np.zeros((2, weights.shape[1]))
        for block_rows in row_blocks(weights):
            magnitudes = np.nan_to_num(np.abs(gradients[block_rows]), nan=np.inf, posinf=np.inf)
            sizes, influences = np.abs(weights[block_rows]), np.zeros_like(magnitudes)
            np.multiply(sizes, magnitudes, out=influences, where=sizes > 0)
            for kind, values in enumerate((magnitudes, influences)):
                rows[kind, block_rows], largest = _largest(values)
                columns[kind] = np.maximum(columns[kind], largest)
        return cls((rows[0], columns[0]), (rows[1], columns[1]))

    def __or__(self, other: Reach) -> Reach:
        """Combine the reach of two sets of samples."""
        gradients = map(np.maximum, self.gradients, other.gradients)
        influences = map(np.maximum, self.influences, other.influences)
        return Reach((next(gradients), next(gradients)), (next(influences), next(influences)))

    @property
    def reached(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Masks of the rows, and of the columns, that a sample reaches."""
        rows, columns = self.gradients
        return rows > 0, columns > 0

    @property
    def influential(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Masks of the reached rows, and of the reached columns, with influence."""
        least = ROUNDING * self.network_maximum
        rows, columns = (
            above_large_share(influences[reached], WITHOUT_INFLUENCE, least)
            for influences, reached in zip(self.influences, self.reached, strict=True)
        )
        return rows, columns


def above_large_share(largest: NDArray, share: float, least: float) -> NDArray[np.bool_]:
    """Return the mask of values above a bound and above a share of the 90% quantile."""
    present = largest[(largest > 0) & np.isfinite(largest)]
    large = float(np.quantile(present, LARGE)) if present.size else 0.0
    return np.asarray(largest > max(least, share * large))


def large_lines(weights: NDArray) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return the masks of rows, and of columns, with a weight that is not faint.

    Faint are weights below a tenth of those of large rows or columns, or below a thousandth of
    initial weights of layers with as many inputs.
    """
    least = FADED / np.sqrt(max(1, weights.shape[1]))
    rows, columns = (above_large_share(lines, FAINT, least) for lines in _largest(weights))
    return rows, columns


def used_submatrix(weights: NDArray) -> NDArray:
    """Return the rows and columns that are not faint; a view if nothing is left out."""
    for _ in range(ROUNDS):
        weights = submatrix(weights, *large_lines(weights))
    return weights


def filled_submatrix(weights: NDArray) -> NDArray:
    """Return the rows and columns with at least 16 nonzero weights; shorter lines are all kept.

    After balancing, the few weights that pruning leaves in a nearly empty line would dominate.
    """
    for axis in (0, 1):
        if weights.shape[1 - axis] >= FEWEST_VALUES:
            filled = np.count_nonzero(weights, axis=1 - axis) >= FEWEST_VALUES
            weights = weights if filled.all() else np.compress(filled, weights, axis=axis)
    return weights


def submatrix(weights: NDArray, rows: NDArray[np.bool_], columns: NDArray[np.bool_]) -> NDArray:
    """Return selected rows and columns; a view if nothing is left out."""
    weights = weights if rows.all() else weights[rows]
    return weights if columns.all() else weights[:, columns]


def _largest(weights: NDArray) -> tuple[NDArray, NDArray]:
    """Return the largest magnitude of each row, and of each column, without a copy."""
    rows, columns = (
        np.maximum(weights.max(axis=axis, initial=0), -weights.min(axis=axis, initial=0))
        for axis in (1, 0)
    )
    return rows, columns


@dataclass(frozen=True)
class Balanced:
    """Matrix with rows and columns scaled to equal root mean square.

    A line that is small as a whole is then like any other, and a line dominated by one weight
    stands out at any scale. Lines of zeros are unchanged. Of the unscaled weights, Shape (out, in),
    each row and column has a factor.
    """

    weights: NDArray
    rows: NDArray
    columns: NDArray

    def blocks(self) -> Iterator[NDArray]:
        """Yield blocks of scaled rows in double precision."""
        for block_rows in row_blocks(self.weights):
            yield self.rows[block_rows, None] * self.weights[block_rows] * self.columns


def balance(weights: NDArray) -> Balanced:
    """Scale rows and columns alternately (Sinkhorn and Knopp 1967, of the squares)."""
    rows, columns = np.ones(weights.shape[0]), np.ones(weights.shape[1])
    for _ in range(SCALINGS):
        rows = _factors(_square_sums(weights, columns, 1), weights.shape[1])
        columns = _factors(_square_sums(weights, rows, 0), weights.shape[0])
    return Balanced(weights, rows, columns)


def _square_sums(weights: NDArray, factors: NDArray, axis: int) -> NDArray:
    """Compute square sums of rows (axis 1) or columns (axis 0), with the other lines scaled."""
    squares, sums = factors**2, np.zeros(weights.shape[1 - axis])
    for block_rows in row_blocks(weights):
        block = np.square(weights[block_rows], dtype=float)
        if axis:
            sums[block_rows] = block @ squares
        else:
            sums += squares[block_rows] @ block
    return sums


def _factors(square_sums: NDArray, count: int) -> NDArray:
    present = square_sums > 0
    factors = np.ones(len(square_sums))
    factors[present] = np.sqrt(count / square_sums[present])
    return factors


def row_blocks(weights: NDArray) -> Iterator[slice]:
    """Yield ranges of rows, so that intermediate results take little memory."""
    step = max(1, BLOCK_VALUES // max(1, weights.shape[1]))
    return (slice(at, at + step) for at in range(0, len(weights), step))


@dataclass(frozen=True)
class Concentration:
    """Effective number, and number of nonzero weights, of each row or of each column.

    The effective number is sum(w^2)^2 / sum(w^4): 1 if a single weight dominates, all if they are
    of equal size; 0 for lines of zeros.
    """

    effective: NDArray
    filled: NDArray


def concentration(blocks: Iterator[NDArray]) -> tuple[Concentration, Concentration]:
    """Compute the concentration of rows and of columns of a matrix given in blocks of rows."""
    rows, columns = [np.zeros((3, 0))], np.zeros((3, 1))
    for block in blocks:
        squares = block**2
        sums = [squares, squares**2, block != 0]
        rows.append(np.stack([values.sum(axis=1) for values in sums]))
        columns = columns + np.stack([values.sum(axis=0) for values in sums])
    concentrations = []
    for second, fourth, filled in (np.concatenate(rows, axis=1), columns):
        effective = np.divide(second**2, fourth, out=np.zeros_like(second), where=fourth > 0)
        concentrations.append(Concentration(effective, filled))
    return concentrations[0], concentrations[1]
