from __future__ import annotations

import numpy as np

from gleak.metrics.images import CHUNK, measure_images


def test_chunks_are_joined_in_order(make_comparison):
    truth = np.random.default_rng(0).random((3, CHUNK - 1, 1, 2, 2))
    sizes = []

    def measure(estimate, true):
        sizes.append(len(true))
        return (estimate - 2 * true).sum(dim=(1, 2, 3))

    values = measure_images(measure, make_comparison(truth, np.zeros_like(truth)))
    np.testing.assert_allclose(values, -2 * truth.sum(axis=(2, 3, 4)))
    assert max(sizes) <= CHUNK
