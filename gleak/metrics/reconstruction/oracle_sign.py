"""Metrics with a sign oracle, for attacks that recover each image up to its sign."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from typing_extensions import override

from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.metrics.base import MetricSpec
from gleak.metrics.reconstruction.lpips import Lpips
from gleak.metrics.reconstruction.pixel_similarity import Psnr
from gleak.runtime.perceptual import SQUEEZE, Net

if TYPE_CHECKING:
    from gleak.metrics.base import Comparison


class OracleSignMetric(MetricSpec):
    """Base of the metrics that apply another metric to each image with its better sign.

    An attacker has no such oracle. CPA's paper chooses the sign "through a visual comparison"
    (section III-C) and its code by the squared error to the truth, as here: its published numbers
    are of this kind, and what an attacker achieves without an oracle is the plain metric.
    """

    modalities: ClassVar[frozenset[str]] = frozenset({"image"})

    @property
    @abstractmethod
    def plain(self) -> MetricSpec:
        """The underlying metric."""

    @property
    @override
    def weights(self) -> frozenset[str]:
        return self.plain.weights

    @override
    def applies(self, comparison: Comparison) -> bool:
        """Return True if the attack also stored its images with the opposite sign."""
        found = comparison.reconstruction
        return super().applies(comparison) and found is not None and found.mirrored is not None

    @override
    def measure(self, comparison: Comparison) -> np.ndarray:
        return self.plain.measure(with_oracle_signs(comparison))

    @override
    def matched(self, comparison: Comparison) -> np.ndarray:
        return super().matched(with_oracle_signs(comparison))


def with_oracle_signs(comparison: Comparison) -> Comparison:
    """Return the comparison with each image in the sign of the smaller squared error.

    Images are assigned to the truth again, with the least sum of the smaller of both errors among
    the pairs of `gleak.metrics.reconstruction.assignment.allowed_pairs`. If both errors are equal,
    the attack's own sign is used.
    """
    from gleak.metrics.reconstruction.assignment import allowed_pairs, assign_up_to_sign, gather

    found = comparison.reconstruction
    assert found is not None and found.mirrored is not None
    allowed = allowed_pairs(comparison.truth_labels, found)
    order = assign_up_to_sign(comparison.truth, found.inputs, found.mirrored, allowed)
    own, other = (gather(images, order, np.nan) for images in (found.inputs, found.mirrored))
    errors = [((images - comparison.truth) ** 2).sum(axis=(2, 3, 4)) for images in (own, other)]
    is_other = (errors[1] < errors[0])[..., None, None, None]
    return replace(comparison, estimate=np.where(is_other, other, own))


@register("psnr_oracle_sign")
class PsnrOracleSign(OracleSignMetric):
    """`psnr` of each image in the sign with the smaller squared error."""

    source = "ours, after CPA's oracle"
    unit: ClassVar[str] = Psnr.unit
    better: ClassVar[Literal["higher", "lower"]] = Psnr.better

    @property
    @override
    def plain(self) -> MetricSpec:
        return Psnr()


@register("lpips_oracle_sign")
class LpipsOracleSign(OracleSignMetric):
    """`lpips` of each image in the sign with the smaller squared error."""

    source = "CPA Tables I, III and IV"
    better: ClassVar[Literal["higher", "lower"]] = Lpips.better

    net: Net = parameter(SQUEEZE, "as of `lpips`", source="ours; vgg in CPA's code")

    @property
    @override
    def plain(self) -> MetricSpec:
        return Lpips(net=self.net)
