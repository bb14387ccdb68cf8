"""Peak signal-to-noise ratio of images whose sign an oracle chooses."""

from __future__ import annotations

from typing import ClassVar, Literal

from typing_extensions import override

from gleak.core.registry import register
from gleak.metrics.base import MetricSpec
from gleak.metrics.oracle_sign import OracleSignMetric
from gleak.metrics.psnr import Psnr


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
