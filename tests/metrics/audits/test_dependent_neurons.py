from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gleak.metrics.audits.dependent_neurons import COSINE, ISOLATED, MOST_PARTNERS, opposed_rows


def slowly(weights: np.ndarray) -> int:
    """Every pair of rows, as it is defined."""
    present = weights[np.linalg.norm(weights, axis=1) > 0]
    rows = present / np.linalg.norm(present, axis=1, keepdims=True)
    found = 0
    for at, row in enumerate(rows):
        cosines = np.delete(rows, at, axis=0) @ row
        near = np.abs(cosines)
        alone = not ((near > ISOLATED) & (near <= COSINE)).any()
        opposed = (cosines < -COSINE).any()
        found += opposed and alone and (near > COSINE).sum() <= MOST_PARTNERS
    return found


@given(
    seed=st.integers(0, 10**6),
    inputs=st.sampled_from([16, 64, 65, 300]),
    copies=st.lists(
        st.tuples(st.integers(0, 19), st.integers(0, 19), st.sampled_from([-3.0, -1e-4, 0.0, 2.0])),
        max_size=12,
    ),
    noise=st.sampled_from([0.0, 0.01, 0.2]),
)
def test_rows_are_those_that_a_comparison_of_all_pairs_finds(
    seed: int, inputs: int, copies: list[tuple[int, int, float]], noise: float
):
    random = np.random.default_rng(seed)
    weights = random.normal(size=(20, inputs))
    for source, target, factor in copies:
        close = weights[source] + noise * random.normal(size=inputs)
        weights[target] = factor * close
    assert opposed_rows(weights) == slowly(weights)


def test_blocks_of_rows_find_the_same(monkeypatch: pytest.MonkeyPatch):
    weights = np.random.default_rng(0).normal(size=(50, 100)).astype(np.float32)
    weights[40:45] = -2 * weights[3:8]
    too_small_to_square = np.float32(1e-35) * weights
    assert opposed_rows(too_small_to_square) == 10
    monkeypatch.setattr("gleak.metrics.audits.dependent_neurons.BLOCK_ROWS", 7)
    assert opposed_rows(weights) == 10


def test_rows_that_learn_the_same_are_no_pairs():
    """Rows after weight decay, all in two directions."""
    random = np.random.default_rng(0)
    weights = random.normal(size=(30, 2)) @ random.normal(size=(2, 100))
    weights[:10] = np.sign(weights[:10, :1]) * weights[0]
    assert opposed_rows(weights) == 0
