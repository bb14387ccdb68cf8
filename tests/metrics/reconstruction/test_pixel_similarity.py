from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import permutations, product

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gleak.metrics.base import Comparison, MetricUnavailable
from gleak.metrics.reconstruction.pixel_similarity import (
    LpipsOracleSign,
    Mse,
    OracleSignMetric,
    Psnr,
    PsnrOracleSign,
    Ssim,
    with_oracle_signs,
)
from gleak.runtime.torchvision_ops import ensure_operators


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


def test_psnr_is_capped_at_100_decibels(make_comparison):
    truth = np.full((1, 4, 1, 4, 4), 0.5)
    estimate = truth + np.reshape([1e-2, 1e-4, 1e-6, 0], (1, 4, 1, 1, 1))
    values = Psnr().measure(make_comparison(truth, estimate))
    np.testing.assert_allclose(values, [[40, 80, 100, 100]])


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


def authors_similarity(estimate: np.ndarray, truth: np.ndarray) -> float:
    """Luminance, contrast and structure of one channel, as in ROG's code, for intensities to 255.

    Their product is Eq. 24.
    """
    one, other = 255 * estimate, 255 * truth
    c1, c2 = (0.01 * 255) ** 2, (0.03 * 255) ** 2
    luminance = (2 * one.mean() * other.mean() + c1) / (one.mean() ** 2 + other.mean() ** 2 + c1)
    contrast = (2 * one.std() * other.std() + c2) / (one.var() + other.var() + c2)
    covariance = ((one - one.mean()) * (other - other.mean())).mean()
    return luminance * contrast * (covariance + c2 / 2) / (one.std() * other.std() + c2 / 2)


def test_ssim_of_rog_is_that_of_its_authors_code(make_comparison) -> None:
    """OpenCV's colours: Y, 0.564 (B - Y) + 0.5 and 0.713 (R - Y) + 0.5."""
    truth, estimate = np.random.default_rng(0).random((2, 1, 1, 3, 12, 14))

    def converted(image: np.ndarray) -> list[np.ndarray]:
        red, green, blue = image
        luma = 0.299 * red + 0.587 * green + 0.114 * blue
        return [luma, 0.564 * (blue - luma) + 0.5, 0.713 * (red - luma) + 0.5]

    pairs = zip(converted(estimate[0, 0]), converted(truth[0, 0]), strict=True)
    luma, *chromas = [authors_similarity(*pair) for pair in pairs]
    values = Ssim(window="global", channels="ycbcr").measure(make_comparison(truth, estimate))
    assert values.tolist() == [[pytest.approx(0.8 * luma + 0.1 * sum(chromas), abs=1e-4)]]


def test_global_ssim_has_no_smallest_image_and_grey_has_only_luma(make_comparison) -> None:
    truth, estimate = np.random.default_rng(0).random((2, 1, 2, 1, 3, 3))
    grey = Ssim(window="global", channels="ycbcr").measure(make_comparison(truth, estimate))
    plain = Ssim(window="global").measure(make_comparison(truth, estimate))
    np.testing.assert_array_equal(grey, plain)


@pytest.mark.parametrize(
    ("metric", "shape", "fault"),
    [
        (Ssim(channels="ycbcr"), (2, 12, 12), "2 channels; ycbcr needs 1 or 3"),
        (Ssim(), (1, 10, 32), "smaller than the window of 11 x 11"),
        (Ssim(), (1, 32, 10), "smaller than the window of 11 x 11"),
    ],
)
def test_images_without_colours_or_smaller_than_the_window_are_refused(
    make_comparison, metric: Ssim, shape: tuple[int, ...], fault: str
) -> None:
    truth = np.zeros((1, 1, *shape))
    with pytest.raises(MetricUnavailable, match=fault):
        metric.measure(make_comparison(truth, truth))


Make = Callable[..., Comparison]
BOTH = [PsnrOracleSign(), LpipsOracleSign()]
each = pytest.mark.parametrize("metric", BOTH, ids=str)


def compared(make: Make, truth: np.ndarray, found: np.ndarray, other: np.ndarray) -> Comparison:
    """A comparison whose attack found images under two signs; the estimate beside is no matter."""
    whole = make(truth, truth)
    assert whole.reconstruction is not None
    labels = np.zeros(found.shape[:2], dtype=int)
    both = replace(
        whole.reconstruction, inputs=found, mirrored=other, labels=labels, averaged_count=None
    )
    return replace(whole, reconstruction=both)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32 - 1), samples=st.integers(1, 3))
def test_no_other_assignment_and_signs_have_a_smaller_error(
    make_comparison: Make, seed: int, samples: int
):
    truth, found, other = np.random.default_rng(seed).random((3, 2, samples, 1, 2, 2))
    signed = with_oracle_signs(compared(make_comparison, truth, found, other))
    for victim, errors in enumerate(Mse().measure(signed)):
        signs = (found[victim], other[victim])
        totals = [
            sum(
                ((signs[sign][place] - true) ** 2).mean()
                for true, place, sign in zip(truth[victim], order, chosen, strict=True)
            )
            for order in permutations(range(samples))
            for chosen in product((0, 1), repeat=samples)
        ]
        assert errors.sum() == pytest.approx(min(totals))


@each
@pytest.mark.usefixtures("random_weights")
def test_the_value_is_the_plain_one_of_the_better_sign(
    make_comparison: Make, metric: OracleSignMetric
):
    truth, noise = np.random.default_rng(0).random((2, 2, 3, 3, 16, 16))
    near = 0.7 * truth + 0.3 * noise
    wrong = np.array([[True, False, True], [False, False, True]])[..., None, None, None]
    found, other = np.where(wrong, 1 - near, near), np.where(wrong, near, 1 - near)
    order = [2, 0, 1]
    comparison = compared(make_comparison, truth, found[:, order], other[:, order])
    plain = metric.plain.measure(make_comparison(truth, near))
    np.testing.assert_allclose(metric.measure(comparison), plain, rtol=1e-5)
    assert (metric.unit, metric.better) == (metric.plain.unit, metric.plain.better)


def test_images_that_were_not_found_have_no_sign_and_equal_errors_the_attacks(
    make_comparison: Make,
) -> None:
    truth = np.full((1, 1, 1, 2, 2), 0.5)
    found = truth + np.array([[0.25, 0], [0, 0]])
    signed = with_oracle_signs(compared(make_comparison, truth, found, 1 - found))
    np.testing.assert_array_equal(signed.estimate, found)
    truth = np.random.default_rng(0).random((1, 3, 1, 4, 4))
    comparison = compared(make_comparison, truth, truth, 1 - truth)
    assert comparison.reconstruction is not None
    partly = replace(comparison.reconstruction, averaged_count=np.array([[1, 0, 2]]))
    signed = with_oracle_signs(replace(comparison, reconstruction=partly))
    assert PsnrOracleSign().matched(signed).tolist() == [[True, False, True]]
    assert np.isnan(signed.estimate[0, 1]).all()
    np.testing.assert_array_equal(signed.estimate[:, [0, 2]], truth[:, [0, 2]])
