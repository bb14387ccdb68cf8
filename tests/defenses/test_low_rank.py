from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gleak.artifacts.encodings import Dense, Factored
from gleak.core.registry import parse

BASES = ["random", "best"]
SHAPES = [(6, 5), (5, 30), (8, 2, 3, 3), (7, 1, 9)]
CASES = st.tuples(st.sampled_from(SHAPES), st.integers(1, 4), st.integers(1, 3), st.integers(0, 99))


def normal(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype("f4")


def protect(values: np.ndarray, spec: str, seed: int = 0) -> Factored | Dense:
    defense = parse("defense", f"low_rank+{spec}")
    update = {"w": torch.from_numpy(values)}
    return defense.protect(update, torch.Generator().manual_seed(seed), {})["w"]


def matrices(values: np.ndarray) -> np.ndarray:
    """Shape (R, out, rest)."""
    return values.reshape(*values.shape[:2], -1)


@pytest.mark.parametrize("basis", BASES)
@given(case=CASES)
def test_the_product_is_of_the_rank_and_projects_the_update(
    basis: str, case: tuple[tuple[int, ...], int, int, int]
) -> None:
    """The residual is orthogonal to an orthonormal basis, and larger ranks lose no more."""
    shape, rank, rounds, seed = case
    values = normal((rounds, *shape), seed)
    sent = protect(values, f"rank={rank}+basis={basis}", seed)
    assert sent.left.shape[-1] == rank
    left, found = sent.left[0], matrices(sent.decode()[0])
    identity = np.broadcast_to(np.eye(rank), (rounds, rank, rank))
    np.testing.assert_allclose(left.mT @ left, identity, atol=1e-5)
    np.testing.assert_allclose(left.mT @ (matrices(values) - found), 0, atol=1e-4)
    assert (np.linalg.matrix_rank(found, tol=1e-4) <= rank).all()


@given(CASES)
def test_the_best_basis_gives_the_nearest_matrix(
    case: tuple[tuple[int, ...], int, int, int],
) -> None:
    """Oracle: what a truncated singular value decomposition leaves (Eckart and Young)."""
    shape, rank, rounds, seed = case
    values = normal((rounds, *shape), seed)
    found = matrices(protect(values, f"rank={rank}+basis=best").decode()[0])
    lost = ((matrices(values) - found) ** 2).sum((1, 2))
    singular = np.linalg.svd(matrices(values.astype("f8")), compute_uv=False)
    np.testing.assert_allclose(lost, (singular[:, rank:] ** 2).sum(1), rtol=1e-3, atol=1e-6)


def test_an_update_of_that_rank_is_sent_without_loss() -> None:
    values = normal((2, 9, 3)) @ normal((2, 3, 20), 1)
    np.testing.assert_allclose(protect(values, "rank=3+basis=best").decode()[0], values, atol=1e-4)


def test_a_random_basis_does_not_depend_on_the_update() -> None:
    one, other = (protect(normal((2, 9, 20), seed), "rank=3") for seed in (0, 1))
    np.testing.assert_array_equal(one.left, other.left)


def test_random_bases_differ_between_clients_and_rounds() -> None:
    values = normal((2, 9, 20))
    lefts = [left for seed in (0, 1) for left in protect(values, "rank=3", seed).left[0]]
    assert len({left.tobytes() for left in lefts}) == 4


def test_random_directions_favour_none() -> None:
    """The mean projection on k of m uniformly random directions is k/m times the identity."""
    sent = protect(np.zeros((4000, 5, 6), "f4"), "rank=2")
    mean = (sent.left[0] @ sent.left[0].mT).mean(0)
    np.testing.assert_allclose(mean, 2 / 5 * np.eye(5), atol=0.03)


@pytest.mark.parametrize("basis", BASES)
@pytest.mark.parametrize("shape", [(), (20,), (3, 50), (50, 3), (20, 1, 2, 2), (4, 4)])
def test_what_would_not_shrink_is_sent_as_it_is(basis: str, shape: tuple[int, ...]) -> None:
    values = normal((2, *shape))
    sent = protect(values, f"rank=4+basis={basis}")
    assert isinstance(sent, Dense)
    np.testing.assert_array_equal(sent.values[0], values)
