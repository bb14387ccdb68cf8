from __future__ import annotations

from dataclasses import replace

import numpy as np

from gleak.metrics.success_labels import SuccessLabels


def test_counts_equal_labels_and_leaves_the_missing_unmatched(make_comparison):
    inputs = np.zeros((1, 3, 2))
    comparison = replace(
        make_comparison(inputs, inputs),
        truth_labels=np.array([[5, 6, 7]]),
        estimate_labels=np.array([[5, 9, -1]]),
    )
    assert SuccessLabels().measure(comparison).tolist() == [[1, 0, 0]]
    assert SuccessLabels().matched(comparison).tolist() == [[True, True, False]]
