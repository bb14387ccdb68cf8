"""Completion of matrices of low rank."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from gleak.attacks.unmixing.alternating_least_squares import complete, determines


def product(seed: int, rank: int, rows: int = 40, columns: int = 120) -> Tensor:
    stream = torch.Generator().manual_seed(seed)
    left = torch.randn(rows, rank, generator=stream)
    return left @ torch.rand(rank, columns, generator=stream)


@given(seed=st.integers(0, 10**6), rank=st.integers(1, 4), scale=st.sampled_from([1e-8, 1.0, 1e8]))
def test_values_unknown_at_random_are_computed(seed: int, rank: int, scale: float) -> None:
    matrix = scale * product(seed, rank)
    known = torch.rand(matrix.shape, generator=torch.Generator().manual_seed(seed)) < 0.5
    found = complete(matrix.where(known, torch.nan), known, rank, 300)
    assert (found - matrix).norm() < 1e-4 * matrix.norm()


@pytest.mark.parametrize("rank", [1, 3])
def test_the_largest_values_determine_rows_and_columns_with_enough_of_them(rank: int) -> None:
    matrix = product(1, rank)
    known = matrix.abs() > matrix.abs().quantile(0.6)
    enough = (known.sum(0) >= 2 * rank) & (known.sum(1, keepdim=True) >= 2 * rank)
    assert known.float().mean() < enough.float().mean() < 1
    error = complete(matrix, known, rank, 300) - matrix
    assert error[enough].norm() < 1e-2 * matrix[enough].norm()


def test_known_values_are_unchanged() -> None:
    matrix = product(2, 8)
    known = matrix > 0
    assert torch.equal(complete(matrix, known, 2, 5)[known], matrix[known])


def test_rows_and_columns_without_known_values_are_zero() -> None:
    matrix = product(3, 2)
    known = torch.ones_like(matrix, dtype=torch.bool)
    known[4] = False
    known[:, 7] = False
    found = complete(matrix, known, 2, 300)
    assert found[4].abs().max() < 1e-6
    assert found[:, 7].abs().max() < 1e-6


def test_a_matrix_of_zeros_stays_one() -> None:
    zeros = torch.zeros(5, 6)
    assert torch.equal(complete(zeros, zeros.bool(), 2, 3), zeros)


def whole() -> Tensor:
    return torch.ones(40, 120).bool()


def without_a_column() -> Tensor:
    return whole().index_fill(1, torch.tensor([7]), False)


def in_two_parts() -> Tensor:
    return torch.block_diag(torch.ones(20, 60), torch.ones(20, 60)).bool()


def few() -> Tensor:
    return torch.rand(40, 120, generator=torch.Generator().manual_seed(0)) < 0.3


@pytest.mark.parametrize(
    ("known", "rank", "expected"),
    [
        (whole(), 40, True),
        (in_two_parts() | ~without_a_column(), 1, True),
        (in_two_parts(), 1, False),
        (without_a_column(), 1, False),
        (few(), 1, True),
        (few(), 8, False),
    ],
)
def test_known_values_determine_every_column_or_not(
    known: Tensor, rank: int, expected: bool
) -> None:
    assert determines(product(0, rank), known, rank, 1.5) is expected


def test_rows_of_zeros_determine_nothing() -> None:
    matrix = product(0, 1)
    matrix[20:] = 0
    known = whole()
    known[:20, 7] = False
    assert not determines(matrix, known, 1, 1.5)
