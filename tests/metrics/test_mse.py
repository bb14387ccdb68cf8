from __future__ import annotations

import numpy as np
from skimage.metrics import mean_squared_error

from gleak.metrics.mse import Mse


def test_agrees_with_scikit_image(make_comparison):
    truth, estimate = np.random.default_rng(0).random((2, 2, 3, 3, 8, 8), dtype=np.float32)
    expected = [
        [mean_squared_error(*pair) for pair in zip(*victim, strict=True)]
        for victim in zip(truth, estimate, strict=True)
    ]
    values = Mse().measure(make_comparison(truth, estimate))
    np.testing.assert_allclose(values, expected, rtol=1e-5)


def test_is_a_mean_over_the_columns_of_a_table(make_comparison):
    truth = np.zeros((1, 1, 4))
    values = Mse().measure(make_comparison(truth, np.array([[[1.0, 0.0, 0.0, 0.5]]])))
    assert values.tolist() == [[1.25 / 4]]
