"""Completion of matrices of low rank of which some values are known, such as gradients."""

from __future__ import annotations

import math

from gleak.attacks.matching.pieces import sent_gram
from gleak.attacks.unmixing.mixtures import leading_directions
from gleak.core.lazy import torch
from gleak.data.natural_images import ImagePrior

RIDGE, DECAY, SMALL_RIDGE = 1.0, 0.93, 1e-6
"""Weight of the ridge at first, its factor after each alternation, and the weight at which the
factors are near their end.

Relative to the largest known value. Chosen on training images of MNIST and CIFAR-10
(docs/results/masks.md).
"""
LAST_DECAY, LEAST_RIDGE = 0.5, 1e-11
"""Factor of the ridge below `SMALL_RIDGE`, and its least weight."""
EXACT_SHARE = 0.75
"""Share of the columns with known values that must have enough, or the ridge stays larger.

Otherwise the factor of the rows is not exact, and columns of few values would be fitted to its
errors.
"""
LEAST_OF_ROWS, LEAST_OF_COLUMNS = 1e-4, 1e-9
"""Least eigenvalues of the normal matrices of rows and columns that are determined.

Rows must be as exact as the zeros of a ReLU that `spear` finds in them; of columns an error of 1e-3
is less than that of what `interpolated` fills in.
"""

BLACK, DEVIATIONS = 0.02, 3.0
"""Pixels without known values are black if they are more than chance leaves out, by this share of
all pixels and so many standard deviations of what chance leaves out."""

LARGEST = 0.5
"""Share of the unknown values of other pixels below the least known one, above which the largest
values were sent."""

TINY = 1e-30


def complete(
    values: torch.Tensor,
    known: torch.Tensor,
    rank: int,
    alternations: int,
    shape: tuple[int, ...] = (),
) -> torch.Tensor:
    """Estimate a matrix from its known values by alternating least squares.

    They are fitted by a product of two factors. In turn, each factor is computed by ridge
    regression from the other (Jain, Netrapalli and Sanghavi 2013, without their sampling of values;
    ridge as in Hastie et al. 2015). The ridge decreases: the large singular values are fitted
    first, and the start, the singular vectors of the known values, matters less. At last it is so
    small that a matrix that its values determine is exact. Rows that they do not determine are
    zero, unless the rank is 1 or there are no others, as are columns without known values unless
    `interpolated`.

    Args:
        values: Shape (rows, columns).
        known: which of them are known.
        rank: of the product.
        alternations: largest number; fewer if the known values are fitted.
        shape: (C, H, W) if the first columns are the pixels of images; empty: they are none.
    """
    completed, rows = torch.zeros_like(values), enough_rows(known, rank)
    if not rows.any():
        return completed
    by_column = is_by_column(known)
    known = known[rows]
    largest = values[rows].where(known, 0).abs().amax().clamp(min=torch.finfo(values.dtype).tiny)
    scaled = (values[rows] / largest).where(known, 0).double()
    counts = known.sum(0)
    is_exact = (counts >= rank).sum() > EXACT_SHARE * (counts > 0).sum()
    least = LEAST_RIDGE if is_exact else SMALL_RIDGE
    left, right = factors_of(scaled, known, rank, alternations, least)
    determined = determined_rows(right, known, LEAST_OF_ROWS)
    if rank > 1 and determined.any():
        left = left.where(determined[:, None], 0)
    used = left.any(1)
    if shape and used.any():
        parts = left[used], right, scaled[used], known[used]
        right = interpolated(*parts, shape, least, by_column)
    completed[rows] = (left @ right.T).to(values) * largest
    return completed


def factors_of(
    scaled: torch.Tensor, known: torch.Tensor, rank: int, alternations: int, least: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Fit the known values of a matrix by a product of two factors, see `complete`.

    Args:
        scaled: the known values relative to the largest, others 0; Shape (rows, columns).
        known: which they are; Shape (rows, columns).
        rank: of the product, at most; directions that rounding hides are left out.
        alternations: largest number.
        least: weight of the ridge at last.

    Returns:
        Shape (rows, rank) and (columns, rank).
    """
    mask, ridge = known.double(), RIDGE
    vectors, _ = leading_directions(scaled, rank)
    left, right = _balanced(vectors, scaled.T @ vectors)
    for _ in range(alternations):
        left = regress(scaled, mask, right, ridge)
        right = regress(scaled.T, mask.T, left, ridge)
        left, right = _balanced(left, right)
        if ridge <= SMALL_RIDGE and _fits(scaled, mask, left, right):
            break
        decay = DECAY if ridge > SMALL_RIDGE else LAST_DECAY
        ridge = max(least, ridge * decay)
    sizes = left.square().sum(0)
    visible = sizes >= torch.finfo(torch.float32).eps * sizes.max()
    return left[:, visible], right[:, visible]


def enough_rows(known: torch.Tensor, rank: int) -> torch.Tensor:
    """Mark rows with ``rank`` known values in columns with as many in such rows.

    Others depend on the ridge alone. If there are none, all rows with known values are marked.

    Args:
        known: Shape (rows, columns).
        rank: of the matrix.

    Returns:
        Shape (rows).
    """
    rows = known_rows = known.any(1)
    for _ in range(len(known)):
        columns = (known & rows[:, None]).sum(0) >= rank
        kept = rows & ((known & columns).sum(1) >= rank)
        if kept.equal(rows):
            break
        rows = kept
    return rows if rows.any() else known_rows


def determined_rows(factor: torch.Tensor, known: torch.Tensor, least: float) -> torch.Tensor:
    """Mark the rows of a matrix whose known values determine the rows of its left factor.

    Args:
        factor: the right one; Shape (columns, rank).
        known: Shape (rows, columns).
        least: eigenvalue of the normal matrix of a row, for orthonormal columns of the factor: the
            variance of rounding errors is divided by it.

    Returns:
        Shape (rows).
    """
    basis = torch.linalg.qr(factor).Q
    normal = sent_gram(basis.T[None], known.double()[None])[0]
    return torch.linalg.eigvalsh(normal)[:, 0] > least


def _fits(
    scaled: torch.Tensor, mask: torch.Tensor, left: torch.Tensor, right: torch.Tensor
) -> bool:
    """Return True if a product has the known values up to the rounding of single precision."""
    errors = (left @ right.T - scaled) * mask
    return bool(
        errors.square().sum() <= torch.finfo(torch.float32).eps ** 2 * scaled.square().sum()
    )


def interpolated(
    left: torch.Tensor,
    right: torch.Tensor,
    scaled: torch.Tensor,
    known: torch.Tensor,
    shape: tuple[int, ...],
    ridge: float = LEAST_RIDGE,
    by_column: bool = False,
) -> torch.Tensor:
    """Fill in the pixels that their known values do not determine, from the others.

    A row of the factor is a mixture of images, so it has their spectrum: the pixels follow from
    the others by the prior of natural images, as far as their known values do not tell them. If the
    largest values were sent, as those of other pixels show, the unknown ones are at most as large
    as the least of them. So are those of pixels without any, if these are more than chance
    leaves out: a mask of nonzero values does not have the zeros of black pixels that were sent.

    Args:
        left: factor of the rows; Shape (rows, rank).
        right: factor of the columns; Shape (columns, rank).
        scaled: the known values, others 0; Shape (rows, columns).
        known: which they are; Shape (rows, columns).
        shape: of an image; its pixels are the first columns.
        ridge: least weight of what the other pixels tell, relative to known values; more if these
            are not fitted exactly.
        by_column: True if whole columns were sent, and others not: this says nothing of sizes.
    """
    size = math.prod(shape)
    open_pixels = ~determined_rows(left, known[:, :size].T, LEAST_OF_COLUMNS)
    if not open_pixels.any() or open_pixels.all():
        return right
    images = ImagePrior.natural(shape, right).interpolated(right[:size].T, open_pixels).T
    products = (images[open_pixels] @ left.T).abs()
    largest = products.where(~known[:, :size][:, open_pixels].T, 0).amax(1)
    bound = scaled[known].abs().min()
    others = (right[:size][~open_pixels] @ left.T).abs()[~known[:, :size][:, ~open_pixels].T]
    by_size = bool((others <= bound).double().mean() > LARGEST)
    silent = ~known[:, :size][:, open_pixels].any(0)
    is_black = silent & leaves_out_zeros(scaled[:, :size], known[:, :size])
    is_bounded = (is_black | by_size) & (not by_column)
    factors = torch.where(is_bounded, (bound / largest.clamp(min=TINY)).clamp(max=1), 1)
    filled, columns = right.clone(), torch.nonzero(open_pixels)[:, 0]
    guess, own = factors[:, None] * images[columns], known[:, columns].T.double()
    errors = (scaled[:, columns].T - guess @ left.T) * own
    noise = (scaled - left @ right.T)[:, :size][:, ~open_pixels][known[:, :size][:, ~open_pixels]]
    ridge = max(ridge, float(noise.square().mean() / guess.square().mean().clamp(min=TINY)))
    filled[columns] = guess + regress(errors, own, left, ridge)
    return filled


def is_by_column(known: torch.Tensor) -> bool:
    """Return True if whole columns of a matrix are known, and of the others nothing."""
    return bool((known.all(0) | ~known.any(0)).all())


def leaves_out_zeros(scaled: torch.Tensor, known: torch.Tensor) -> bool:
    """Return True if the known values are those that are not zero of what was sent.

    Then no known value is zero, and more columns are without known values than chance leaves out,
    which takes of each row the share that is known of it.

    Args:
        scaled: the known values, others 0; Shape (rows, columns).
        known: which they are; Shape (rows, columns).
    """
    by_chance = (1 - known.double().mean(1)).prod()
    deviation = (by_chance * (1 - by_chance) / known.shape[1]).sqrt()
    silent = (~known.any(0)).double().mean()
    is_rare = silent <= by_chance + DEVIATIONS * deviation + BLACK
    return not bool(is_rare | (scaled[known] == 0).any())


def determines(values: torch.Tensor, known: torch.Tensor, rank: int, enough: float) -> bool:
    """Return True if the known values determine the others of every column.

    A row gives the factor of the rows as many equations as it has known values, and takes ``rank``
    of them for its own factor; a row of zeros gives none. Of the rows that are left, every column
    needs ``rank`` values, all columns need ``enough`` times the values of both factors, and nonzero
    values must connect all of them: the scales of two parts without a common row are independent.
    """
    if known.all():
        return True
    nonzero = (values != 0) & known
    rows = nonzero.any(1) & (known.sum(1) > rank)
    used, links = known[rows], nonzero[rows].double()
    if not (used.sum(0) >= rank).all() or used.sum() < enough * rank * sum(used.shape):
        return False
    reached = torch.zeros(len(links)).to(links)
    reached[0] = 1
    for _ in range(len(links)):
        wider = (links @ (links.T @ reached)).clamp(max=1)
        if wider.equal(reached):
            break
        reached = wider
    return bool(reached.all())


def regress(
    values: torch.Tensor, mask: torch.Tensor, other: torch.Tensor, ridge: float
) -> torch.Tensor:
    """Compute the rows of one factor from the other, (columns, rank); unknown values are 0."""
    normal = sent_gram(other.T[None], mask[None])[0]
    regular = normal + ridge * torch.eye(other.shape[1]).to(other)
    return torch.linalg.solve(regular, (values @ other)[..., None])[..., 0]


def _balanced(left: torch.Tensor, right: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return factors of the same product, with orthogonal columns of the same norms."""
    left_basis, left_part = torch.linalg.qr(left)
    right_basis, right_part = torch.linalg.qr(right)
    inner_left, sizes, inner_right = torch.linalg.svd(left_part @ right_part.T)
    roots = sizes.sqrt()
    return left_basis @ inner_left * roots, right_basis @ inner_right.T * roots
