"""Learned perceptual image patch similarity of images whose sign an oracle chooses."""

from __future__ import annotations

from typing import ClassVar, Literal

from typing_extensions import override

from gleak.core.registry import register
from gleak.metrics.base import MetricSpec
from gleak.metrics.lpips import Lpips
from gleak.metrics.oracle_sign import OracleSignMetric


@register("lpips_oracle_sign")
class LpipsOracleSign(OracleSignMetric):
    """`lpips` of each image under the sign, of the two, that has the smaller squared error."""

    source = "CPA Tables I, III and IV"
    better: ClassVar[Literal["higher", "lower"]] = Lpips.better

    @property
    @override
    def plain(self) -> MetricSpec:
        return Lpips()
