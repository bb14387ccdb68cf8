from __future__ import annotations

import numpy as np
import pytest
import torch

from gleak.metrics.psnr import Psnr
from gleak.runtime.torchvision_ops import ensure_operators


def test_agrees_with_torchmetrics_for_each_image(make_comparison):
    ensure_operators()
    from torchmetrics.functional.image import peak_signal_noise_ratio

    truth, estimate = np.random.default_rng(0).random((2, 40, 2, 3, 8, 8))
    expected = peak_signal_noise_ratio(
        torch.from_numpy(estimate).flatten(0, 1),
        torch.from_numpy(truth).flatten(0, 1),
        data_range=1.0,
        reduction="none",
        dim=(1, 2, 3),
    ).reshape(truth.shape[:2])
    values = Psnr().measure(make_comparison(truth, estimate))
    np.testing.assert_allclose(values, expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("difference", "expected"), [(1e-2, 40), (1e-4, 80), (1e-6, 100), (0, 100)]
)
def test_is_capped_at_100_decibels(make_comparison, difference: float, expected: float):
    truth = np.full((1, 1, 1, 4, 4), 0.5)
    values = Psnr().measure(make_comparison(truth, truth + difference))
    np.testing.assert_allclose(values, expected)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_an_image_that_is_not_finite_has_no_finite_value(make_comparison, value: float):
    truth = np.full((1, 2, 1, 4, 4), 0.5)
    estimate = truth + 1e-2
    estimate[0, 1, 0, 2, 3] = value
    values = Psnr().measure(make_comparison(truth, estimate))
    np.testing.assert_allclose(values[0, 0], 40)
    assert not np.isfinite(values[0, 1]) and not values[0, 1] > 0
