"""Similarity of pixels, also with an oracle of the sign."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import numpy as np

from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.metrics.base import NOT_NEGATIVE, SIGNED, Comparison, MetricSpec, MetricUnavailable
from gleak.metrics.reconstruction.assignment import allowed_pairs, assign_samples, gather
from gleak.metrics.reconstruction.feature_similarity import Lpips
from gleak.runtime.perceptual import SQUEEZE, Net

PSNR_CAP = 100.0
SSIM_WINDOW = 11
C1, C2 = 0.01**2, 0.03**2
LUMA = np.array([0.299, 0.587, 0.114])
YCBCR = np.array([LUMA, ([0, 0, 1] - LUMA) / 1.772, ([1, 0, 0] - LUMA) / 1.402])
"""Luma and chromas of RGB intensities, by ITU-R BT.601, without the offset of chromas."""
YCBCR_WEIGHTS = (0.8, 0.1, 0.1)


@register("mse")
class Mse(MetricSpec):
    """Mean squared error over a sample's features (pixels and channels)."""

    limits = NOT_NEGATIVE

    def measure(self, comparison: Comparison) -> np.ndarray:
        error = comparison.estimate.astype(np.float64) - comparison.truth
        return np.asarray((error**2).mean(axis=tuple(range(2, error.ndim))))


@register("psnr")
class Psnr(MetricSpec):
    """-10 log10 of the mean squared error of each image, for a data range of 1.

    Identical images have no finite value: values are capped at 100 dB, a mean squared error of
    1e-10. An image that is not finite has no finite value. There is one value per image; their mean
    is not the PSNR of a pooled error.
    """

    modalities = frozenset({"image"})
    unit = "dB"
    better = "higher"
    limits = (-math.inf, PSNR_CAP)

    def measure(self, comparison: Comparison) -> np.ndarray:
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
    """Structural similarity of each image, with k1 = 0.01, k2 = 0.03 and data range 1.

    With window=gaussian, the mean over pixels of windows of 11 x 11 pixels with sigma 1.5. Only
    windows inside the image count, so padding has no influence. With window=global, means,
    variances and covariance are those of the whole image, which gives higher values. The
    similarities of the channels are averaged.
    """

    modalities = frozenset({"image"})
    better = "higher"
    limits = SIGNED

    window: Literal["gaussian", "global"] = parameter(
        "gaussian",
        "windows of 11 x 11 pixels, or one over the whole image",
        source="Wang et al., IEEE TIP 2004, section III; global in ROG Eq. 24",
    )
    channels: Literal["rgb", "ycbcr"] = parameter(
        "rgb",
        "channels of a colour image; of ycbcr luma counts 0.8 and both chromas 0.1",
        source="scikit-image; ycbcr in ROG's code",
    )

    def measure(self, comparison: Comparison) -> np.ndarray:
        count, height, width = comparison.truth.shape[2:]
        if self.window == "gaussian" and min(height, width) < SSIM_WINDOW:
            raise MetricUnavailable(
                f"images of {height} x {width} pixels are smaller than the window of "
                f"{SSIM_WINDOW} x {SSIM_WINDOW} pixels"
            )
        if self.channels == "ycbcr" and count not in (1, len(YCBCR)):
            raise MetricUnavailable(f"images have {count} channels; ycbcr needs 1 or 3")
        return measure_images(self._similarity, comparison)

    def _similarity(self, estimate: np.ndarray, truth: np.ndarray) -> float:
        """Compute the similarity of one image, the weighted mean over its channels."""
        per_channel = global_similarity if self.window == "global" else _windowed_similarity
        if self.channels == "rgb" or len(truth) == 1:
            return float(np.mean(per_channel(estimate, truth)))
        offset = np.array([0, 0.5, 0.5])[:, None, None]
        converted = (np.tensordot(YCBCR, image, 1) + offset for image in (estimate, truth))
        return float(np.average(per_channel(*converted), weights=YCBCR_WEIGHTS))


def _windowed_similarity(estimate: np.ndarray, truth: np.ndarray) -> list[float]:
    """Compute the mean similarity of each channel over all windows; Shape (C, H, W)."""
    from skimage.metrics import structural_similarity

    settings = {"gaussian_weights": True, "sigma": 1.5, "use_sample_covariance": False}
    return [
        structural_similarity(*channels, data_range=1.0, **settings)
        for channels in zip(truth, estimate, strict=True)
    ]


def global_similarity(estimate: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Compute the similarity of each channel with one window over the whole image (ROG Eq. 24).

    Shapes (C, H, W) to (C), at most 1.
    """
    x, y = (image.reshape(len(image), -1) for image in (estimate, truth))
    mean_x, mean_y = x.mean(1), y.mean(1)
    covariance = (x * y).mean(1) - mean_x * mean_y
    means = (2 * mean_x * mean_y + C1) / (mean_x**2 + mean_y**2 + C1)
    return np.asarray(means * (2 * covariance + C2) / (x.var(1) + y.var(1) + C2))


def measure_images(
    measure: Callable[[np.ndarray, np.ndarray], float], comparison: Comparison
) -> np.ndarray:
    """Compute one number for each estimate and its truth, in double precision; Shape (V, N)."""
    shape, pair = comparison.truth.shape, (comparison.estimate, comparison.truth)
    flat = (images.reshape(-1, *shape[2:]).astype(np.float64) for images in pair)
    return np.array([measure(*images) for images in zip(*flat, strict=True)]).reshape(shape[:2])


class OracleSignMetric(MetricSpec):
    """Base of the metrics that apply another metric to each image with its better sign.

    An attacker has no such oracle. CPA's paper chooses the sign "through a visual comparison"
    (section III-C) and its code by the squared error to the truth, as here: its published numbers
    are of this kind, and what an attacker achieves without an oracle is the plain metric.
    """

    modalities = frozenset({"image"})

    @property
    @abstractmethod
    def plain(self) -> MetricSpec:
        """The underlying metric."""

    @property
    def weights(self) -> frozenset[str]:
        return self.plain.weights

    def applies(self, comparison: Comparison) -> bool:
        """Return True if the attack also stored its images with the opposite sign."""
        mirrored = getattr(comparison.reconstruction, "mirrored", None)
        return super().applies(comparison) and mirrored is not None

    def measure(self, comparison: Comparison) -> np.ndarray:
        return self.plain.measure(with_oracle_signs(comparison))

    def matched(self, comparison: Comparison) -> np.ndarray:
        return super().matched(with_oracle_signs(comparison))


def with_oracle_signs(comparison: Comparison) -> Comparison:
    """Return the comparison with each image in the sign of the smaller squared error.

    Images are assigned to the truth again. If both errors are equal, the attack's sign is used.
    """
    found = comparison.reconstruction
    assert found is not None and found.mirrored is not None
    allowed = allowed_pairs(comparison.truth_labels, found)
    order = assign_samples(comparison.truth, found.inputs, allowed, found.mirrored)
    own, other = (gather(images, order, np.nan) for images in (found.inputs, found.mirrored))
    errors = [((images - comparison.truth) ** 2).sum(axis=(2, 3, 4)) for images in (own, other)]
    is_other = (errors[1] < errors[0])[..., None, None, None]
    return replace(comparison, estimate=np.where(is_other, other, own))


@register("psnr_oracle_sign")
class PsnrOracleSign(OracleSignMetric):
    """`psnr` of each image in the sign with the smaller squared error."""

    source = "ours, after CPA's oracle"
    unit = Psnr.unit
    better = Psnr.better
    limits = Psnr.limits

    @property
    def plain(self) -> MetricSpec:
        return Psnr()


@register("lpips_oracle_sign")
class LpipsOracleSign(OracleSignMetric):
    """`lpips` of each image in the sign with the smaller squared error."""

    source = "CPA Tables I, III and IV"
    better = Lpips.better
    limits = Lpips.limits

    net: Net = parameter(SQUEEZE, "as of `lpips`", source="ours; vgg in CPA's code")

    @property
    def plain(self) -> MetricSpec:
        return Lpips(net=self.net)
