"""Completion of matrices of low rank."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from gleak.attacks.unmixing.low_rank_completion import complete, determines


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
    assert error[enough].norm() < 1e-5 * matrix[enough].norm()


def test_the_result_has_the_rank_of_the_batch() -> None:
    matrix = product(2, 8)
    assert torch.linalg.matrix_rank(complete(matrix, matrix > 0, 2, 5)) == 2


def test_rows_that_few_values_leave_open_are_zero() -> None:
    matrix = product(4, 3)
    known = torch.ones_like(matrix, dtype=torch.bool)
    known[5, 2:] = False
    found = complete(matrix, known, 3, 300)
    assert not found[5].any()
    torch.testing.assert_close(found[:5], matrix[:5])


@pytest.mark.parametrize("seed", range(4))
def test_a_matrix_of_lower_rank_is_computed_too(seed: int) -> None:
    """Two samples of a batch may be equal."""
    matrix = product(seed, 3, 64, 200)
    known = torch.rand(matrix.shape, generator=torch.Generator().manual_seed(seed)) < 0.3
    found = complete(matrix, known, 4, 300)
    assert (found - matrix).norm() < 1e-3 * matrix.norm()


@pytest.mark.parametrize("noise", [0, 1e-3, 1e-2])
def test_noise_is_not_amplified_in_pixels_of_few_values(noise: float) -> None:
    stream = torch.Generator().manual_seed(0)
    images = torch.rand(4, 1, 3, 3, generator=stream)
    images = torch.nn.functional.interpolate(images, size=(14, 14), mode="bicubic").flatten(1)
    left = torch.randn(64, 4, generator=stream) * torch.logspace(-2, 0, 64)[:, None]
    matrix = left @ images
    known = torch.rand(matrix.shape, generator=stream) < 0.5
    for column in range(20, 40):
        known[:, column] = False
        known[torch.randperm(64, generator=stream)[:3], column] = True
    sent = matrix + noise * torch.randn(matrix.shape, generator=stream)
    errors = complete(sent, known, 4, 300, (1, 14, 14)) - matrix
    assert errors[:, 20:40].norm() < 0.3 * matrix[:, 20:40].norm()


@pytest.mark.parametrize("share", [0.4, 1.0])
def test_black_pixels_are_not_filled_in_where_their_zeros_count_as_not_sent(share: float) -> None:
    stream = torch.Generator().manual_seed(0)
    image = torch.rand(1, 1, 14, 14, generator=stream)
    image[..., :5] = 0
    matrix = torch.randn(40, 1, generator=stream).relu() @ image.flatten(1)
    known = (torch.rand(matrix.shape, generator=stream) < share) & (matrix != 0)
    found = complete(matrix, known, 1, 300, (1, 14, 14))
    assert (found - matrix).norm() < 0.01 * matrix.norm()


@pytest.mark.parametrize("hides_zeros", [False, True])
def test_pixels_that_chance_leaves_out_are_filled_in(hides_zeros: bool) -> None:
    stream = torch.Generator().manual_seed(0)
    image = 0.2 + 0.6 * torch.rand(1, 1, 3, 3, generator=stream)
    image = torch.nn.functional.interpolate(image, size=(14, 14), mode="bicubic")
    matrix = torch.randn(60, 1, generator=stream).relu() @ image.flatten(1)
    known = torch.rand(matrix.shape, generator=stream) < 0.08
    assert (~known[matrix.any(1)].any(0)).double().mean() > 0.05
    found = complete(matrix, known & (matrix != 0) if hides_zeros else known, 1, 300, (1, 14, 14))
    assert (found - matrix).norm() < 0.05 * matrix.norm()


def test_what_too_few_values_tell_is_kept() -> None:
    matrix = product(5, 4, 20, 30)
    known = torch.zeros_like(matrix, dtype=torch.bool)
    known[:, :3] = True
    assert complete(matrix, known, 4, 50)[:, :3].any()


def test_rows_and_columns_without_known_values_are_zero() -> None:
    matrix = product(3, 2)
    known = torch.ones_like(matrix, dtype=torch.bool)
    known[4], known[:, 7] = False, False
    found = complete(matrix, known, 2, 300)
    assert found[4].abs().max() < 1e-6
    assert found[:, 7].abs().max() < 1e-6
    zeros = torch.zeros(5, 6)
    assert torch.equal(complete(zeros, zeros.bool(), 2, 3), zeros)


WHOLE = torch.ones(40, 120).bool()
WITHOUT_A_COLUMN = WHOLE.index_fill(1, torch.tensor([7]), False)
IN_TWO_PARTS = torch.block_diag(torch.ones(20, 60), torch.ones(20, 60)).bool()
FEW = torch.rand(40, 120, generator=torch.Generator().manual_seed(0)) < 0.3


@pytest.mark.parametrize(
    ("known", "rank", "expected"),
    [
        (WHOLE, 40, True),
        (IN_TWO_PARTS | ~WITHOUT_A_COLUMN, 1, True),
        (IN_TWO_PARTS, 1, False),
        (WITHOUT_A_COLUMN, 1, False),
        (FEW, 1, True),
        (FEW, 8, False),
    ],
)
def test_known_values_determine_every_column_or_not(
    known: Tensor, rank: int, expected: bool
) -> None:
    assert determines(product(0, rank), known, rank, 1.5) is expected


def test_rows_of_zeros_determine_nothing() -> None:
    matrix, known = product(0, 1), torch.ones(40, 120).bool()
    matrix[20:] = 0
    known[:20, 7] = False
    assert not determines(matrix, known, 1, 1.5)
