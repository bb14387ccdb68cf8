"""Audits of linear dependence between neurons."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.metrics.audits.base import AuditSpec, Broadcast, Finding, evenly_spaced
from gleak.metrics.audits.weight_matrices import Balanced

COSINE = 0.999
ISOLATED = 0.955
PROJECTED_COSINE = 0.95
MOST_PARTNERS = 3
CHANCE_ROWS = 2
DIRECTIONS = 64
FEWEST_INPUTS = 16
FEWEST_ROWS = 4
BLOCK_ROWS = 1024
LOST = 0.03
SMALL = 0.3
CONFINED = 0.6
EACH = 1.8
ASPECT = 4
MOST_VALUES = 512
FEWEST_SINGULAR_VALUES = 16
CHANCE_VALUES = 2


@register("audit_parallel")
class AuditParallel(AuditSpec):
    """Largest share of a layer's neurons or filters that come in small groups of opposites.

    Opposite means a cosine below -0.999. Pairs of which one neuron is always active (MKOR equation
    10) are opposite at any scale, until noise of 3% of the weights is added to all of them. Weight
    decay makes neurons parallel, too, mostly in the same direction: all that learn the same, or
    nothing, end in a few directions, so that each has many neighbours at various distances. A row
    therefore counts only if it has an opposite, at most three rows are parallel to it, and every
    other row of the layer has an absolute cosine below 0.955. One pair per layer may occur by
    chance. A server that makes five or more copies of each neuron is not found by this audit. Rows
    are first compared in 64 random directions, and exactly if they are close to another one. At
    least 16 inputs and 4 outputs are needed.
    """

    meaning: ClassVar[str] = (
        "Neurons come in pairs of opposites, of which one is always active: together they copy "
        "values of your samples exactly."
    )

    limit: float = parameter(
        5e-4, "share above which an alarm is raised", source="ours: above honest models", gt=0
    )

    def examine(self, broadcast: Broadcast) -> list[Finding]:
        findings = []
        for layer in broadcast.layers:
            rows, inputs = layer.audited.shape
            if inputs >= FEWEST_INPUTS and rows >= FEWEST_ROWS:
                count = opposed_rows(layer.audited)
                text = f"{count} of {rows} rows are opposite to another row and close to no others"
                findings.append(Finding(layer.name, max(0, count - CHANCE_ROWS) / rows, text))
        return findings


def opposed_rows(weights: NDArray) -> int:
    """Count rows with an opposite, at most three parallel rows, and no other neighbours."""
    units = shadows = _normalised(weights[np.any(weights, axis=1)])
    if units.shape[1] > DIRECTIONS:
        shape = (units.shape[1], DIRECTIONS)
        directions = np.random.default_rng(0).standard_normal(shape, dtype=np.float32)
        shadows = _normalised(units @ directions)
    count = 0
    for start in range(0, len(units), BLOCK_ROWS):
        here = np.arange(start, min(start + BLOCK_ROWS, len(units)))
        near = here[np.abs(_cosines(shadows, here)).max(axis=1, initial=0) > PROJECTED_COSINE]
        cosines = _cosines(units, near)
        partners = np.count_nonzero(np.abs(cosines) > COSINE, axis=1)
        neighbours = np.count_nonzero(np.abs(cosines) > ISOLATED, axis=1)
        opposed = (cosines < -COSINE).any(axis=1)
        grouped = opposed & (partners <= MOST_PARTNERS) & (neighbours == partners)
        count += int(np.count_nonzero(grouped))
    return count


def _cosines(units: NDArray, rows: NDArray) -> NDArray:
    """Compute cosines of the given rows with all rows, 0 with themselves; Shape (given, all)."""
    cosines = units[rows] @ units.T
    cosines[np.arange(len(rows)), rows] = 0
    return cosines


def _normalised(rows: NDArray) -> NDArray:
    largest = np.abs(rows).max(axis=1, keepdims=True, initial=0)
    rows = np.divide(rows, largest, out=np.zeros_like(rows), where=largest > 0)
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.divide(rows, norms, out=np.zeros_like(rows), where=norms > 0)


@register("audit_spectrum")
class AuditSpectrum(AuditSpec):
    """Largest share of a layer's singular values that vanish because pairs of lines are dependent.

    A singular value has vanished if it is below 3% of the median. No singular value of a fresh
    matrix four times as long as wide is below half of the median (Marchenko and Pastur 1967).
    Weight decay shrinks many over all orders of magnitude, so the number between 3% and 30% is
    subtracted. Factorised layers lose directions that all lines share, and faint lines are
    directions of their own; so vanished values count only if the effective number of lines that
    their directions involve is below 60% of all lines and above 1.8 per direction, as for pairs.
    Rows and columns are balanced and sampled at even distances, four times as many of the more
    numerous, for at most 512 singular values. Two vanished values are not counted, one since
    softmax does not train the sum of its inputs. At least 16 singular values are needed.
    """

    source = "Marchenko and Pastur 1967, the lower edge of the spectrum"
    meaning: ClassVar[str] = (
        "Neurons depend on each other in pairs, as where values of your samples are copied; "
        "training does not leave such pairs."
    )

    limit: float = parameter(
        0.01, "share above which an alarm is raised", source="ours: above honest models", gt=0
    )

    def examine(self, broadcast: Broadcast) -> list[Finding]:
        findings = []
        for layer in broadcast.layers:
            matrix = _sampled_matrix(layer.balanced)
            if min(matrix.shape) >= FEWEST_SINGULAR_VALUES:
                findings.append(_examine_spectrum(layer.name, matrix))
        return findings


def _examine_spectrum(name: str, matrix: NDArray) -> Finding:
    """Compute the statistic of a matrix with no more rows than columns."""
    directions, values, _ = np.linalg.svd(matrix, full_matrices=False)
    lost, small = (values <= share * np.median(values) for share in (LOST, SMALL))
    count = np.count_nonzero(lost)
    excess = max(0, int(2 * count - np.count_nonzero(small) - CHANCE_VALUES))
    shares = (directions[:, lost] ** 2).sum(axis=1)
    lines = float(shares.sum() ** 2 / (shares**2).sum()) if shares.any() else 0.0
    confined = EACH * count < lines < CONFINED * len(matrix)
    text = f"{count} of {len(values)} singular values vanish, in about {lines:.0f} lines"
    return Finding(name, excess / len(values) if confined else 0.0, text)


def _sampled_matrix(balanced: Balanced) -> NDArray:
    """Sample rows and columns, `ASPECT` times as many of one as of the other, the fewer as rows."""
    rows, columns = balanced.weights.shape
    long, short = max(rows, columns), min(rows, columns)
    short = min(short, long // ASPECT, MOST_VALUES)
    counts = (short, ASPECT * short) if rows <= columns else (ASPECT * short, short)
    chosen = [evenly_spaced(rows, counts[0]), evenly_spaced(columns, counts[1])]
    matrix = balanced.weights[np.ix_(*chosen)] * balanced.columns[chosen[1]]
    matrix *= balanced.rows[chosen[0], None]
    return matrix if rows <= columns else matrix.T
