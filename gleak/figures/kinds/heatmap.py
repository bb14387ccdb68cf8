"""Heat maps: the mean of a metric by two axes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pydantic import Field
from typing_extensions import override

from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.studies.axis_labels import AxisLabels
from gleak.studies.cell import Cell
from gleak.studies.figure_spec import FigureData, GridFigure, without_controls


@register("heatmap")
class Heatmap(GridFigure):
    """Mean of a metric in each cell of a grid, as a number and as a colour.

    Dark is the better end of the metric: the attack finds more. Means that are worse than that of
    the blind control are marked. Intervals are in the CSV. The paper's values are not shown.
    """

    x: str = Field(description="axis of the columns")
    y: str = Field(description="axis of the rows, from top to bottom")
    facets: str | None = parameter(None, "axis told apart by panels, side by side")
    metric: str = Field(description="metric")
    limits: tuple[float, float] | None = parameter(
        None, "values beyond which the colour no longer changes; none: the lowest and highest mean"
    )

    @property
    @override
    def reading(self) -> str:
        return (
            "Numbers are means over victims; dark is where the attack finds more. A triangle marks "
            "means that are worse than that of the blind control, which uses no update."
        )

    @property
    @override
    def used_metrics(self) -> Sequence[str]:
        return [self.metric]

    @property
    @override
    def used_axes(self) -> Sequence[str]:
        return [axis for axis in (self.x, self.y, self.facets) if axis is not None]

    @override
    def chosen(self, names: AxisLabels, cells: Sequence[Cell]) -> list[Cell]:
        return without_controls(super().chosen(names, cells))

    @override
    def draw(self, material: FigureData, stem: Path) -> None:
        from gleak.figures.kinds.heatmap_drawing import draw_heatmap

        draw_heatmap(self, material, stem)
