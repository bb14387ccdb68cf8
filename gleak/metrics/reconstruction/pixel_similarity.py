"""Pixel-wise error and similarity of reconstructed samples."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from typing_extensions import override

from gleak.core.registry import register
from gleak.metrics.base import MetricSpec, MetricUnavailable

if TYPE_CHECKING:
    from gleak.metrics.base import Comparison

PSNR_CAP = 100.0
SSIM_WINDOW = 11


@register("mse")
class Mse(MetricSpec):
    """Mean squared error over a sample's features (pixels and channels)."""

    @override
    def measure(self, comparison: Comparison) -> np.ndarray:
        """Compute the errors in double precision; Shape (V, N), in [0, 1] for inputs in [0, 1]."""
        error = comparison.estimate.astype(np.float64) - comparison.truth
        return np.asarray((error**2).mean(axis=tuple(range(2, error.ndim))))


@register("psnr")
class Psnr(MetricSpec):
    """-10 log10 of the mean squared error of each image, for a data range of 1.

    Identical images have no finite value: values are capped at 100 dB, a mean squared error of
    1e-10. An image that is not finite has no finite value. There is one value per image; their mean
    is not the PSNR of a pooled error.
    """

    modalities: ClassVar[frozenset[str]] = frozenset({"image"})
    unit: ClassVar[str] = "dB"
    better: ClassVar[Literal["higher", "lower"]] = "higher"

    @override
    def measure(self, comparison: Comparison) -> np.ndarray:
        """Compute the ratios; Shape (V, N), in dB, at most 100."""
        return measure_images(_psnr, comparison)


def _psnr(estimate: np.ndarray, truth: np.ndarray) -> float:
    from skimage.metrics import peak_signal_noise_ratio

    if np.array_equal(estimate, truth):
        return PSNR_CAP
    with np.errstate(divide="ignore"):
        ratio = peak_signal_noise_ratio(truth, estimate, data_range=1.0)
    return float(np.minimum(ratio, PSNR_CAP))


@register("ssim")
class Ssim(MetricSpec):
    """Structural similarity of each image, averaged over pixels and channels.

    Gaussian window of 11 x 11 pixels with sigma 1.5, k1 = 0.01, k2 = 0.03, data range 1. Only
    windows inside the image count, so padding has no influence (Wang et al., "Image quality
    assessment", IEEE TIP 2004, section III).
    """

    modalities: ClassVar[frozenset[str]] = frozenset({"image"})
    better: ClassVar[Literal["higher", "lower"]] = "higher"

    @override
    def measure(self, comparison: Comparison) -> np.ndarray:
        """Compute the similarities; Shape (V, N), at most 1.

        Raises:
            MetricUnavailable: an image side is shorter than the window.
        """
        height, width = comparison.truth.shape[-2:]
        if min(height, width) < SSIM_WINDOW:
            raise MetricUnavailable(
                f"images of {height} x {width} pixels are smaller than the window of "
                f"{SSIM_WINDOW} x {SSIM_WINDOW} pixels"
            )
        return measure_images(_ssim, comparison)


def _ssim(estimate: np.ndarray, truth: np.ndarray) -> float:
    from skimage.metrics import structural_similarity

    return float(
        structural_similarity(
            truth,
            estimate,
            channel_axis=0,
            data_range=1.0,
            gaussian_weights=True,
            sigma=1.5,
            use_sample_covariance=False,
        )
    )


def measure_images(
    measure: Callable[[np.ndarray, np.ndarray], float], comparison: Comparison
) -> np.ndarray:
    """Compute one number for each reconstructed image.

    Args:
        measure: maps an estimate and its truth, both Shape (C, H, W) in double precision.
        comparison: comparison of images.

    Returns:
        Shape (V, N).
    """
    shape = comparison.truth.shape
    pairs = zip(
        comparison.estimate.reshape(-1, *shape[2:]).astype(np.float64),
        comparison.truth.reshape(-1, *shape[2:]).astype(np.float64),
        strict=True,
    )
    return np.array([measure(*pair) for pair in pairs]).reshape(shape[:2])
