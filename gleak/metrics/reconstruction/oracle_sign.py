"""Metrics of images whose sign an oracle chooses, for attacks that find each only up to it."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from typing_extensions import override

from gleak.core.registry import register
from gleak.metrics.base import MetricSpec
from gleak.metrics.reconstruction.lpips import Lpips
from gleak.metrics.reconstruction.pixel_similarity import Psnr

if TYPE_CHECKING:
    from gleak.metrics.base import Comparison


class OracleSignMetric(MetricSpec):
    """Base of the metrics that are another one, of each image under its better sign.

    An attacker has no such oracle. CPA's paper chooses "through a visual comparison" (section
    III-C) and its code by the squared error to the truth, as is done here: its published numbers
    are of this kind, and what an attacker has without it is the plain metric.
    """

    modalities: ClassVar[frozenset[str]] = frozenset({"image"})

    @property
    @abstractmethod
    def plain(self) -> MetricSpec:
        """What is measured."""

    def applies(self, comparison: Comparison) -> bool:
        """Where an attack left its images under the other sign, too."""
        found = comparison.reconstruction
        return super().applies(comparison) and found is not None and found.mirrored is not None

    def measure(self, comparison: Comparison) -> np.ndarray:
        """As the plain metric's.

        Raises:
            MetricUnavailable: as the plain metric.
        """
        return self.plain.measure(with_oracle_signs(comparison))

    def matched(self, comparison: Comparison) -> np.ndarray:
        """Which true images have one assigned, under either sign; Shape (V, N)."""
        return super().matched(with_oracle_signs(comparison))


def with_oracle_signs(comparison: Comparison) -> Comparison:
    """The comparison with each image under the sign of the smaller squared error.

    Images are assigned to the truth anew, at the least sum of the smaller of both errors among the
    pairs that `gleak.metrics.reconstruction.assignment.allowed_pairs` gives. Where both are equal,
    the attack's own sign stays.
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
    """`psnr` of each image under the sign, of the two, that has the smaller squared error."""

    source = "ours, after CPA's oracle"
    unit: ClassVar[str] = Psnr.unit
    better: ClassVar[Literal["higher", "lower"]] = Psnr.better

    @property
    @override
    def plain(self) -> MetricSpec:
        return Psnr()


@register("lpips_oracle_sign")
class LpipsOracleSign(OracleSignMetric):
    """`lpips` of each image under the sign, of the two, that has the smaller squared error."""

    source = "CPA Tables I, III and IV"
    better: ClassVar[Literal["higher", "lower"]] = Lpips.better

    @property
    @override
    def plain(self) -> MetricSpec:
        return Lpips()
