from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gleak.metrics.unique_samples import UniqueSamples

METRIC = UniqueSamples()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(st.integers(0, 5), min_size=6, max_size=6), min_size=1, max_size=3))
def test_samples_alone_in_their_class_are_counted(make_comparison, labels: list[list[int]]):
    samples = np.zeros((len(labels), 6, 2))
    comparison = replace(make_comparison(samples, samples), truth_labels=np.array(labels))
    alone = [sum(count == 1 for count in Counter(batch).values()) for batch in labels]
    assert METRIC.measure(comparison).tolist() == alone


def test_the_mean_over_random_batches_is_that_of_the_paper(make_comparison):
    """K sum p (1 - p)^(K - 1): 36.97 for 100 samples of 100 classes (MKOR section 3.2.1)."""
    labels = np.random.default_rng(0).integers(0, 100, (2000, 100))
    samples = np.zeros((2000, 100, 1), dtype=np.float32)
    comparison = replace(make_comparison(samples, samples), truth_labels=labels)
    counts = METRIC.measure(comparison)
    expected = 100 * 100 * 0.01 * 0.99**99
    assert round(expected, 2) == 36.97
    assert abs(counts.mean() - expected) < 5 * counts.std() / np.sqrt(len(counts))
