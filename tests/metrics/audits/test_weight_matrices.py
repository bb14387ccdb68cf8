from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gleak.metrics.audits.weight_matrices import (
    Reach,
    balance,
    concentration,
    filled_submatrix,
    used_submatrix,
)


def dense(rows: int, columns: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(rows, columns))


def balanced(weights: np.ndarray) -> np.ndarray:
    return np.concatenate(list(balance(weights).blocks()))


def test_lines_with_a_gradient_are_reached_and_those_that_change_logits_are_influential():
    weights, gradients = np.ones((4, 5)), np.zeros((4, 5))
    gradients[[0, 3], [1, 2]] = -1
    weights[0] = 1e-6
    reach = Reach.from_gradients(weights, gradients)
    assert [np.flatnonzero(lines).tolist() for lines in reach.reached] == [[0, 3], [1, 2]]
    assert [lines.tolist() for lines in reach.influential] == [[False, True], [False, True]]


@given(st.integers(0, 10**6), st.sampled_from([1e-30, 1e-3, 1e9]))
def test_influence_stays_where_weights_are_moved_to_the_next_layer(seed: int, scale: float):
    """Rows that are scaled down, with gradients that grow as much."""
    random = np.random.default_rng(seed)
    weights, gradients = random.normal(size=(2, 6, 7))
    scales = np.where(random.random((6, 1)) < 0.5, scale, 1)
    plain = Reach.from_gradients(weights, gradients)
    moved = Reach.from_gradients(weights * scales, gradients / scales)
    for before, after in zip(plain.influences, moved.influences, strict=True):
        np.testing.assert_allclose(after, before)


def test_reach_of_several_samples_is_that_of_any():
    random = np.random.default_rng(0)
    weights, first, second = random.normal(size=(3, 6, 7))
    first[:3], second[:, :3] = 0, 0
    both = Reach.from_gradients(weights, first) | Reach.from_gradients(weights, second)
    expected = Reach.from_gradients(weights, np.maximum(np.abs(first), np.abs(second)))
    for field in ("gradients", "influences"):
        for lines, wanted in zip(getattr(both, field), getattr(expected, field), strict=True):
            np.testing.assert_array_equal(lines, wanted)


@pytest.mark.parametrize("overflown", [np.inf, np.nan])
def test_lines_that_overflow_are_audited(overflown: float):
    weights, gradients = np.ones((4, 5)), np.ones((4, 5))
    gradients[2, 3] = overflown
    weights[:, 0] = 0
    reach = Reach.from_gradients(weights, gradients)
    assert all(lines.all() for lines in reach.reached)
    assert reach.influential[0].all()


def test_lines_that_decayed_are_not_in_use():
    weights = dense(40, 60)
    weights[::2] *= 1e-4
    weights[:, :20] *= 1e-6
    np.testing.assert_array_equal(used_submatrix(weights), weights[1::2, 20:])
    weights[0, 30] = 1  # one large weight is enough
    assert used_submatrix(weights).shape == (21, 40)


@pytest.mark.parametrize("shape", [(0, 4), (4, 0), (3, 3)])
def test_layers_without_any_weight_have_no_line_in_use(shape: tuple[int, int]):
    assert used_submatrix(np.zeros(shape)).size == 0
    rows, columns = concentration(balance(np.zeros(shape)).blocks())
    assert not rows.effective.any()
    assert not columns.effective.any()


def test_nearly_empty_lines_are_left_out_of_long_ones_alone():
    weights = dense(20, 40)
    weights[3, 15:] = 0
    assert filled_submatrix(weights).shape == (19, 40)
    assert filled_submatrix(weights[:10]).shape == (9, 40)
    assert filled_submatrix(weights[:10, :10]).shape == (10, 10)


def test_balanced_rows_and_columns_have_the_same_size():
    weights = dense(30, 50) * np.exp(3 * dense(30, 1)) * np.exp(3 * dense(1, 50, seed=1))
    squares = balanced(weights) ** 2
    np.testing.assert_allclose(squares.mean(axis=0), 1)
    np.testing.assert_allclose(squares.mean(axis=1), 1, rtol=0.05)


@given(st.integers(0, 10**6))
def test_balancing_is_invariant_to_the_scales_of_lines(seed: int):
    random, weights = np.random.default_rng(seed), dense(20, 30)
    scales = np.exp(random.uniform(-9, 9, (20, 1))) * np.exp(random.uniform(-9, 9, (1, 30)))
    np.testing.assert_allclose(balanced(weights * scales), balanced(weights), atol=0.1)


def test_the_effective_number_counts_weights_of_one_size(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("gleak.metrics.audits.weight_matrices.BLOCK_VALUES", 7)
    weights = np.zeros((5, 6))
    for at in range(5):
        weights[at, : at + 1] = (-2.0) ** at
    rows, columns = concentration(balance(weights).blocks())
    np.testing.assert_array_equal(rows.filled, [1, 2, 3, 4, 5])
    np.testing.assert_array_equal(columns.filled, [5, 4, 3, 2, 1, 0])
    plain, _ = concentration(iter([weights[:2], weights[2:]]))
    np.testing.assert_allclose(plain.effective, [1, 2, 3, 4, 5])
