"""Completion of a matrix of low rank, of which some values are known."""

from __future__ import annotations

from gleak.core.lazy import torch

RIDGE, DECAY, LEAST_RIDGE = 1.0, 0.93, 1e-6
"""Weight of the ridge at first, its factor after each alternation, and the least weight.

Relative to the largest known value. Chosen on training images of MNIST and CIFAR-10
(docs/results/masks.md).
"""


def complete(
    values: torch.Tensor, known: torch.Tensor, rank: int, alternations: int
) -> torch.Tensor:
    """Estimate the unknown values of a matrix by alternating least squares.

    The known values are fitted by a product of two factors. In turn, each factor is computed by
    ridge regression from the other (Jain, Netrapalli and Sanghavi 2013, without their sampling of
    values; ridge as in Hastie et al. 2015). The ridge decreases: the large singular values are
    fitted first, and the start, the singular vectors of the known values, matters less. A row or
    column without known values is zero.

    Args:
        values: those not known are not used; Shape (rows, columns).
        known: True where a value is known; Shape (rows, columns).
        rank: of the matrix.
        alternations: number of times that both factors are computed.

    Returns:
        Shape (rows, columns), in the precision of the values; those known are unchanged.
    """
    largest = values.where(known, 0).abs().amax().clamp(min=torch.finfo(values.dtype).tiny)
    scaled = (values / largest).where(known, 0).double()
    mask = known.double()
    left, right = _balanced(*_leading(scaled, rank))
    ridge = RIDGE
    for _ in range(alternations):
        left = _regress(scaled, mask, right, ridge)
        right = _regress(scaled.T, mask.T, left, ridge)
        left, right = _balanced(left, right)
        ridge = max(LEAST_RIDGE, ridge * DECAY)
    estimate = (left @ right.T).to(values) * largest
    return values.where(known, estimate)


def determines(values: torch.Tensor, known: torch.Tensor, rank: int, enough: float) -> bool:
    """Return True if the known values determine the others of every column.

    A row gives the factor of the rows as many equations as it has known values, and takes ``rank``
    of them for its own factor; a row of zeros gives none. Of the rows that are left, every column
    needs ``rank`` values, all columns need ``enough`` times the values of both factors, and nonzero
    values must connect all of them: the scales of two parts without a common row are independent.

    Args:
        values: those not known are not used; Shape (rows, columns).
        known: True where a value is known; Shape (rows, columns).
        rank: of the matrix.
        enough: values known, as a multiple of those that the factors have.
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


def _leading(matrix: torch.Tensor, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the leading left and right singular vectors, the latter times the singular values."""
    left, sizes, right = torch.linalg.svd(matrix, full_matrices=False)
    return left[:, :rank], right[:rank].T * sizes[:rank]


def _regress(
    values: torch.Tensor, mask: torch.Tensor, other: torch.Tensor, ridge: float
) -> torch.Tensor:
    """Compute the rows of one factor from the other; Shape (rows, rank).

    Args:
        values: zero where unknown; Shape (rows, columns).
        mask: 1 where known, else 0; Shape (rows, columns).
        other: Shape (columns, rank).
        ridge: weight of the squared norm.
    """
    products = (other[:, :, None] * other[:, None]).flatten(1)
    normal = (mask @ products).unflatten(1, (other.shape[1],) * 2)
    regular = normal + ridge * torch.eye(other.shape[1]).to(other)
    return torch.linalg.solve(regular, (values @ other)[..., None])[..., 0]


def _balanced(left: torch.Tensor, right: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return factors of the same product, with orthogonal columns of the same norms."""
    left_basis, left_part = torch.linalg.qr(left)
    right_basis, right_part = torch.linalg.qr(right)
    inner_left, sizes, inner_right = torch.linalg.svd(left_part @ right_part.T)
    roots = sizes.sqrt()
    return left_basis @ inner_left * roots, right_basis @ inner_right.T * roots
