"""Lines: a metric against an axis."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import Field
from typing_extensions import override

from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.experiments.axes import label_place, level_of, place
from gleak.experiments.figure_spec import FigureData, Over, Row
from gleak.experiments.labels import AxisLabels
from gleak.figures.plot import MeanPlot


@register("line")
class Line(MeanPlot):
    """Mean of a metric along an axis, with a band, the paper's values and the controls.

    Colours as in `gleak.figures.plot.Plot`: a cell without the field of x is the start of every
    line of its level.
    """

    y: str = Field(description="metric")
    x_missing: float = parameter(0.0, "place on x of specs that lack its field")
    x_scale: Literal["linear", "log", "symlog"] = parameter(
        "linear", "symlog is log with room for 0"
    )
    over: Over = parameter("all", "which reconstructions count; the last: all where none succeeded")

    @property
    @override
    def measured(self) -> Mapping[str, Over]:
        return {self.y: self.over}

    @override
    def along(self, names: AxisLabels, row: Row) -> float | str:
        found = place(self.x, row[level_of(self.x)], self.x_missing)
        return label_place(self.x, names, row) if isinstance(found, str) else found

    @override
    def draw(self, material: FigureData, stem: Path) -> None:
        from gleak.figures.line_drawing import draw_line

        draw_line(self, material, stem)
