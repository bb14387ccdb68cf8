from __future__ import annotations

import numpy as np
import pytest
from skimage.metrics import structural_similarity

from gleak.metrics.base import MetricUnavailable
from gleak.metrics.ssim import Ssim


def reference(truth: np.ndarray, estimate: np.ndarray) -> float:
    """The published setting; its mean leaves the border out, where the window needs padding."""
    return structural_similarity(
        truth,
        estimate,
        channel_axis=0,
        gaussian_weights=True,
        sigma=1.5,
        use_sample_covariance=False,
        data_range=1,
    )


@pytest.mark.parametrize("shape", [(1, 11, 11), (1, 28, 28), (3, 32, 20)])
def test_agrees_with_scikit_image(make_comparison, shape: tuple[int, ...]):
    generator = np.random.default_rng(0)
    truth = generator.random((2, 3, *shape))
    strength = generator.random((2, 3, 1, 1, 1))
    estimate = truth + strength * (generator.random(truth.shape) - truth)
    expected = [
        [reference(*pair) for pair in zip(*victim, strict=True)]
        for victim in zip(truth, estimate, strict=True)
    ]
    values = Ssim().measure(make_comparison(truth, estimate))
    np.testing.assert_allclose(values, expected, atol=1e-6)


@pytest.mark.parametrize("size", [(10, 32), (32, 10), (8, 8)])
def test_images_smaller_than_the_window_are_refused(make_comparison, size: tuple[int, int]):
    truth = np.zeros((1, 1, 1, *size))
    with pytest.raises(MetricUnavailable, match=r"smaller than the 11-pixel window"):
        Ssim().measure(make_comparison(truth, truth))
