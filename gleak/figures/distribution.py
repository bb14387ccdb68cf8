"""Distributions: every value of a metric, not its mean alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pydantic import Field

from gleak.figures.axes import label_category
from gleak.figures.base import Material, Over, Row
from gleak.figures.names import Names
from gleak.figures.plot import Plot
from gleak.registry import register


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
    def measured(self) -> Mapping[str, Over]:
        """See `Plot.measured`."""
        return {self.y: "all"}

    def along(self, names: Names, row: Row) -> float | str:
        """See `Plot.along`; a spec that lacks the field of x is called by its own label."""
        return label_category(self.x, names, row)

    def draw(self, material: Material, stem: Path) -> None:
        """See `FigureSpec.draw`."""
        from gleak.figures.distribution_drawing import draw_distribution

        draw_distribution(self, material, stem)
