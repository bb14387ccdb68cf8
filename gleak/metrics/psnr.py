"""Peak signal-to-noise ratio."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from gleak.core.registry import register
from gleak.metrics.base import MetricSpec
from gleak.metrics.images import measure_images

if TYPE_CHECKING:
    from gleak.metrics.base import Comparison

CAP = 100.0


@register("psnr")
class Psnr(MetricSpec):
    """-10 log10 of each image's own mean squared error, for a data range of 1.

    Identical images have no finite value: values are capped at 100 dB, which is a mean squared
    error of 1e-10. The value of an image that is not finite is not finite either. One value per
    image; the mean of these is not the PSNR of a pooled error.
    """

    modalities: ClassVar[frozenset[str]] = frozenset({"image"})
    unit: ClassVar[str] = "dB"
    better: ClassVar[Literal["higher", "lower"]] = "higher"

    def measure(self, comparison: Comparison) -> np.ndarray:
        """Shape (V, N), in dB, at most 100."""
        return measure_images(_ratio, comparison)


def _ratio(estimate: np.ndarray, truth: np.ndarray) -> float:
    from skimage.metrics import peak_signal_noise_ratio

    if np.array_equal(estimate, truth):
        return CAP
    with np.errstate(divide="ignore"):
        ratio = peak_signal_noise_ratio(truth, estimate, data_range=1.0)
    return float(np.minimum(ratio, CAP))
