from __future__ import annotations

import numpy as np
import pytest
import torch

from gleak.metrics.base import MetricUnavailable
from gleak.metrics.ssim import Ssim
from gleak.runtime.torchvision_ops import ensure_operators


def reference(truth: np.ndarray, estimate: np.ndarray) -> np.ndarray:
    """torchmetrics' full map without its border, where the window needs padding."""
    ensure_operators()
    from torchmetrics.functional.image import structural_similarity_index_measure

    images = [torch.from_numpy(array).flatten(0, 1) for array in (estimate, truth)]
    _, similarity = structural_similarity_index_measure(
        *images, sigma=1.5, data_range=1.0, reduction="none", return_full_image=True
    )
    return similarity[..., 5:-5, 5:-5].mean(dim=(1, 2, 3)).reshape(truth.shape[:2]).numpy()


@pytest.mark.parametrize("shape", [(1, 11, 11), (1, 28, 28), (3, 32, 20)])
def test_agrees_with_torchmetrics(make_comparison, shape: tuple[int, ...]):
    generator = np.random.default_rng(0)
    truth = generator.random((2, 3, *shape))
    strength = generator.random((2, 3, 1, 1, 1))
    estimate = truth + strength * (generator.random(truth.shape) - truth)
    expected = reference(truth, estimate)
    values = Ssim().measure(make_comparison(truth, estimate))
    np.testing.assert_allclose(values, expected, atol=1e-6)


@pytest.mark.parametrize("size", [(10, 32), (32, 10), (8, 8)])
def test_images_smaller_than_the_window_are_refused(make_comparison, size: tuple[int, int]):
    truth = np.zeros((1, 1, 1, *size))
    with pytest.raises(MetricUnavailable, match=r"smaller than the 11-pixel window"):
        Ssim().measure(make_comparison(truth, truth))
