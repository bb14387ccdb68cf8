from __future__ import annotations

import numpy as np
import pytest
import torch
from skimage.metrics import mean_squared_error

from gleak.metrics.base import MetricUnavailable
from gleak.metrics.reconstruction.pixel_similarity import Mse, Psnr, Ssim, measure_images
from gleak.runtime.torchvision_ops import ensure_operators


def test_mse_agrees_with_scikit_image(make_comparison):
    truth, estimate = np.random.default_rng(0).random((2, 2, 3, 3, 8, 8), dtype=np.float32)
    expected = [
        [mean_squared_error(*pair) for pair in zip(*victim, strict=True)]
        for victim in zip(truth, estimate, strict=True)
    ]
    values = Mse().measure(make_comparison(truth, estimate))
    np.testing.assert_allclose(values, expected, rtol=1e-5)


def test_mse_is_a_mean_over_the_columns_of_a_table(make_comparison):
    truth = np.zeros((1, 1, 4))
    values = Mse().measure(make_comparison(truth, np.array([[[1.0, 0.0, 0.0, 0.5]]])))
    assert values.tolist() == [[1.25 / 4]]


def test_psnr_agrees_with_torchmetrics_for_each_image(make_comparison):
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
def test_psnr_is_capped_at_100_decibels(make_comparison, difference: float, expected: float):
    truth = np.full((1, 1, 1, 4, 4), 0.5)
    values = Psnr().measure(make_comparison(truth, truth + difference))
    np.testing.assert_allclose(values, expected)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_psnr_of_an_image_with_nan_or_infinity_is_not_finite(make_comparison, value: float):
    truth = np.full((1, 2, 1, 4, 4), 0.5)
    estimate = truth + 1e-2
    estimate[0, 1, 0, 2, 3] = value
    values = Psnr().measure(make_comparison(truth, estimate))
    np.testing.assert_allclose(values[0, 0], 40)
    assert not np.isfinite(values[0, 1]) and not values[0, 1] > 0


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
def test_ssim_agrees_with_torchmetrics(make_comparison, shape: tuple[int, ...]):
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
    with pytest.raises(MetricUnavailable, match=r"smaller than the window of 11 x 11"):
        Ssim().measure(make_comparison(truth, truth))


def test_every_pair_is_measured_in_its_place(make_comparison):
    truth = np.random.default_rng(0).random((3, 2, 1, 2, 2))
    comparison = make_comparison(truth, np.zeros_like(truth))
    values = measure_images(lambda estimate, true: (estimate - 2 * true).sum(), comparison)
    np.testing.assert_allclose(values, -2 * truth.sum(axis=(2, 3, 4)))
