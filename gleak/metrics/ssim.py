"""Structural similarity."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from gleak.core.registry import register
from gleak.metrics.base import MetricSpec, MetricUnavailable
from gleak.metrics.images import measure_images

if TYPE_CHECKING:
    import numpy as np

    from gleak.metrics.base import Comparison

WINDOW = 11


@register("ssim")
class Ssim(MetricSpec):
    """Structural similarity of each image, mean over pixels and channels.

    Gaussian window of 11 x 11 pixels with sigma 1.5, k1 = 0.01, k2 = 0.03, data range 1. Only
    windows that lie inside the image count, so no padding enters the value (Wang et al., "Image
    quality assessment", IEEE TIP 2004, section III).
    """

    modalities: ClassVar[frozenset[str]] = frozenset({"image"})
    better: ClassVar[Literal["higher", "lower"]] = "higher"

    def measure(self, comparison: Comparison) -> np.ndarray:
        """Shape (V, N), at most 1.

        Raises:
            MetricUnavailable: an image side is shorter than the window.
        """
        height, width = comparison.truth.shape[-2:]
        if min(height, width) < WINDOW:
            raise MetricUnavailable(
                f"images of {height} x {width} pixels are smaller than the {WINDOW}-pixel window"
            )
        return measure_images(_similarity, comparison)


def _similarity(estimate: np.ndarray, truth: np.ndarray) -> float:
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
