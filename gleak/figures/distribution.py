"""Distributions: every value of a metric, not its mean alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pydantic import Field
from typing_extensions import override

from gleak.core.registry import register
from gleak.experiments.axes import label_category
from gleak.experiments.figure_spec import FigureData, Over, Row
from gleak.experiments.labels import AxisLabels
from gleak.figures.plot import Plot


@register("distribution")
class Distribution(Plot):
    """Every value of a metric as a point beside a box of its quantiles, with the controls' means.

    Boxes show the median and the quartiles, whiskers reach from the quantile 0.05 to 0.95. Colours
    as in `gleak.figures.plot.Plot`; values of x stand in the order of the study. The paper's
    values, which are single numbers, are not shown.
    """

    source = "CPA Figure 7"

    y: str = Field(description="metric; one value per sample, or per victim of those that are so")

    @property
    @override
    def measured(self) -> Mapping[str, Over]:
        return {self.y: "all"}

    @override
    def along(self, names: AxisLabels, row: Row) -> float | str:
        """A spec that lacks the field of x is called by its own label."""
        return label_category(self.x, names, row)

    @override
    def draw(self, material: FigureData, stem: Path) -> None:
        from gleak.figures.distribution_drawing import draw_distribution

        draw_distribution(self, material, stem)
