from __future__ import annotations

import numpy as np

from gleak.metrics.images import measure_images


def test_every_pair_is_measured_in_its_place(make_comparison):
    truth = np.random.default_rng(0).random((3, 2, 1, 2, 2))
    comparison = make_comparison(truth, np.zeros_like(truth))
    values = measure_images(lambda estimate, true: (estimate - 2 * true).sum(), comparison)
    np.testing.assert_allclose(values, -2 * truth.sum(axis=(2, 3, 4)))
