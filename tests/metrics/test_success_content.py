from __future__ import annotations

import numpy as np

from gleak.core.registry import parse
from gleak.metrics.success_content import SuccessContent


def test_counts_errors_below_the_threshold(make_comparison):
    truth = np.zeros((1, 3, 2))
    estimate = np.sqrt(np.array([0.0, 0.9e-3, 1.1e-3]))[None, :, None] * np.ones(2)
    comparison = make_comparison(truth, estimate)
    assert SuccessContent().measure(comparison).tolist() == [[1, 1, 0]]
    strict = parse("metric", "success_content+threshold=1e-4")
    assert strict.measure(comparison).tolist() == [[1, 0, 0]]
