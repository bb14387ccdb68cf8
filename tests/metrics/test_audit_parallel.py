from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gleak.metrics.audit import Layer
from gleak.metrics.audit_parallel import COSINE, parallel_rows


def layer(weights: np.ndarray) -> Layer:
    return Layer("a", weights, None, dense=True)


def slowly(weights: np.ndarray) -> int:
    """Every pair of rows, as it is defined."""
    present = weights[np.linalg.norm(weights, axis=1) > 0]
    rows = present / np.linalg.norm(present, axis=1, keepdims=True)
    cosines = np.abs(rows @ rows.T) - np.eye(len(rows))
    return int((cosines > COSINE).any(axis=1).sum())


@given(
    seed=st.integers(0, 10**6),
    inputs=st.sampled_from([16, 64, 65, 300]),
    copies=st.lists(
        st.tuples(st.integers(0, 19), st.integers(0, 19), st.sampled_from([-3.0, 1e-4, 0.0, 2.0])),
        max_size=6,
    ),
    noise=st.sampled_from([0.0, 0.01, 0.3]),
)
def test_rows_are_those_that_a_comparison_of_all_pairs_finds(
    seed: int, inputs: int, copies: list[tuple[int, int, float]], noise: float
):
    random = np.random.default_rng(seed)
    weights = random.normal(size=(20, inputs))
    for source, target, factor in copies:
        close = weights[source] + noise * random.normal(size=inputs)
        weights[target] = factor * close
    assert parallel_rows(layer(weights)) == slowly(weights)


def test_blocks_of_rows_find_the_same(monkeypatch: pytest.MonkeyPatch):
    weights = np.random.default_rng(0).normal(size=(50, 100)).astype(np.float32)
    weights[40:45] = -2 * weights[3:8]
    monkeypatch.setattr("gleak.metrics.audit_parallel.BLOCK_ROWS", 7)
    assert parallel_rows(layer(weights)) == 10
