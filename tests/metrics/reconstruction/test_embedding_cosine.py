from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import permutations
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import cosine

from gleak.metrics.base import Comparison, MetricUnavailable
from gleak.metrics.reconstruction.feature_similarity import EmbeddingCosine
from tests.metrics.comparisons import changed

sizes = st.integers(1, 4)
METRIC = EmbeddingCosine()


def compared(truth: np.ndarray, found: np.ndarray) -> Any:
    """Comparison of one victim, as far as the metric reads it."""
    return SimpleNamespace(
        private=SimpleNamespace(embeddings=truth[None]),
        reconstruction=SimpleNamespace(embeddings=found[None]),
    )


@given(seed=st.integers(0, 2**32 - 1), samples=sizes, sources=sizes)
def test_no_other_assignment_has_a_greater_sum(seed: int, samples: int, sources: int):
    generator = np.random.default_rng(seed)
    truth, found = generator.normal(size=(samples, 5)), generator.normal(size=(sources, 5))
    (values,) = METRIC.measure(compared(truth, found))
    few, many = sorted([truth, found], key=len)
    sums = [
        sum(1 - cosine(one, many[other]) for one, other in zip(few, chosen, strict=True))
        for chosen in permutations(range(len(many)), len(few))
    ]
    assert np.nansum(values) == pytest.approx(max(sums))
    assert METRIC.matched(compared(truth, found)).sum() == min(samples, sources)


@given(seed=st.integers(0, 2**32 - 1), scale=st.floats(1e-3, 1e3))
def test_neither_order_nor_scale_enters(seed: int, scale: float):
    generator = np.random.default_rng(seed)
    truth = generator.random((4, 6), dtype=np.float32)
    found = scale * truth[generator.permutation(4)]
    np.testing.assert_allclose(METRIC.measure(compared(truth, found)), 1, rtol=1e-6)


def test_the_wrong_sign_counts_as_wrong():
    truth = np.eye(2, 3)
    np.testing.assert_allclose(METRIC.measure(compared(truth[:1], -truth[:1])), -1)
    np.testing.assert_allclose(METRIC.measure(compared(truth, -truth)), 0)


def test_vectors_of_zeros_have_the_cosine_0():
    truth, found = np.array([[1.0, 1], [0, 0]]), np.array([[0.0, 0], [2, 2]])
    np.testing.assert_allclose(METRIC.measure(compared(truth, found)), [[1, 0]])


def test_no_embedding_found_leaves_every_one_unmatched():
    none = compared(np.ones((3, 2)), np.ones((0, 2)))
    assert METRIC.matched(none).tolist() == [[False] * 3]


def test_embeddings_of_another_layer_are_not_compared():
    with pytest.raises(MetricUnavailable, match="4 numbers each, the reconstructed ones 3"):
        METRIC.measure(compared(np.ones((2, 4)), np.ones((2, 3))))


def test_applies_where_both_are_there(make_comparison: Callable[..., Comparison]):
    samples = np.random.default_rng(0).random((1, 2, 1, 4, 4))
    both = make_comparison(samples, samples)
    assert METRIC.applies(both)
    assert both.reconstruction is not None
    assert not METRIC.applies(changed(both, embeddings=None))
    assert not METRIC.applies(changed(both, reconstruction=None))
    without = replace(both.reconstruction, embeddings=None)
    assert not METRIC.applies(changed(both, reconstruction=without))
